"""``contextpilot-rag demo``: real questions over real documents, in plain retrieval order and through the engine."""
