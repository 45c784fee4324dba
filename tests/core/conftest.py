"""Texts for the engine's tests: long enough that reuse outweighs a note and a KV block."""

from collections.abc import Callable

import pytest


def body(name: object, words: int = 60) -> str:
    """Return a text of its own for a name (about 340 characters): no two share a span."""
    return " ".join(f"{name}-{number}" for number in range(words))


@pytest.fixture
def text() -> Callable[..., str]:
    """The function that makes a text for a name."""
    return body
