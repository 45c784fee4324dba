"""What connects the reuse engine to the world: model servers, frameworks, the command line.

Every part stands behind its extra; one that is absent raises `MissingExtraError`, which holds the pip line.
"""

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contextpilot_core import __version__  # when it is asked for: the command line starts before the engine

    return __version__


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
