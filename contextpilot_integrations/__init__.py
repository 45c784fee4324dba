"""What connects the reuse engine to the world: model servers, frameworks, the command line.

Every part stands behind its extra; one that is absent raises `MissingExtraError`, which holds the pip line.
"""
