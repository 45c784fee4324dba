"""Text that can be sent: what holds half a character is mended, the same way in every chat."""

from collections.abc import Mapping
from typing import Any, TypeVar

from contextpilot_core import RequestError
from contextpilot_core.checks import is_unicode

_Value = TypeVar("_Value")


def whole(value: _Value) -> _Value:
    """Return a text, or JSON values, that can be written in UTF-8; the value itself where it can be already.

    A model that writes a character in two tokens may be heard between them, and what cuts a text may cut there: that
    leaves half a character (a lone surrogate), which no client library can send. Halves that stand together become
    their character, others U+FFFD.

    Raises:
        RequestError: the value contains itself, or is nested too deeply.
    """
    mended: Any
    try:
        mended = _whole(value)
    except RecursionError:
        raise RequestError(
            "a message contains itself, or is nested too deeply to be sent; give plain JSON values"
        ) from None
    return value if mended is None else mended


def _whole(value: Any) -> Any:
    """Return what a value has to be replaced by; None where it can stay."""
    if isinstance(value, str):
        return None if is_unicode(value) else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        pairs = [(key, _whole(key), entry, _whole(entry)) for key, entry in value.items()]
        if all([mended is None and other is None for _, mended, _, other in pairs]):
            return None
        return {_chosen(key, mended): _chosen(entry, other) for key, mended, entry, other in pairs}
    if isinstance(value, (list, tuple)):
        entries = [(entry, _whole(entry)) for entry in value]
        if all([mended is None for _, mended in entries]):
            return None
        made = [_chosen(entry, mended) for entry, mended in entries]
        return made if isinstance(value, list) else tuple(made)
    return None


def _chosen(value: Any, mended: Any) -> Any:
    return value if mended is None else mended
