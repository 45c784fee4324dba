"""Where a text may be cut: at lines, sentences or words, and not at all where it has a form to keep."""

import json
import re
import unicodedata
from collections.abc import Iterator

_ROW = re.compile(r"^[ \t]*(?:\||\d+[ \t]*[|\t→])", re.MULTILINE)
_JSON_KEY = re.compile(r'"\s*:')
_STARTS = re.compile(r"\n\s*|[.!?…][\"'”’)\]]*\s+|[。！？]\s*")
_ENDS = re.compile(r"(?=\n)|[.!?…][\"'”’)\]]*(?=\s|\Z)|[。！？]")
_WORD_EDGE = re.compile("(?<=[\\s\u2e80-\U0010ffff])|(?=\\s)")  # from U+2E80 on scripts mostly have no spaces
_CHUNK = 64


def is_structured(body: str) -> bool:
    """Tell whether a body may be JSON, hold a code fence, or be a table: such bodies are sent whole, always.

    Cautious: what merely resembles one of them counts.
    """
    edges = body.strip()
    if edges[:1] in ("{", "[") and edges[-1:] in ("}", "]"):
        return True
    if "```" in body or "~~~" in body or _JSON_KEY.search(body):
        return True
    if edges[:1] == edges[-1:] == '"' and _is_json(edges):
        return True
    return len(_ROW.findall(body)) > 1


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def whole_words(body: str, start: int, end: int) -> tuple[int, int]:
    """Cut a run back to whole lines or sentences where that costs at most a quarter of it, else to whole words.

    White space at the ends stays outside. Returns an empty run where no boundary is near.
    """
    slack = (end - start) // 4
    if start > 0:
        start = _first_boundary(body, start, start + slack)
    if end < len(body):
        end = _last_boundary(body, end - slack, end)
    if not 0 <= start < end:
        return 0, 0
    span = body[start:end]
    stripped = span.lstrip()
    start = end - len(stripped)
    return start, start + len(stripped.rstrip())


def _first_boundary(body: str, low: int, high: int) -> int:
    """Return the first start of a line or sentence in [low, high], else of a word, else -1."""
    for stop in _STARTS.finditer(body, max(0, low - 4), high):
        if stop.end() >= low:
            return stop.end()
    return next(_word_edges(body, low, high), -1)


def _last_boundary(body: str, low: int, high: int) -> int:
    """Return the last end of a line in [low, high] or sentence in (low, high], else of a word, else -1."""
    ends = [stop.end() for stop in _ENDS.finditer(body, low, high + 1) if low <= stop.end() <= high]
    if ends:
        return ends[-1]
    for top in range(high, low - 1, -_CHUNK):  # backwards, as the last is asked for: most words are short
        edges = list(_word_edges(body, max(low, top - _CHUNK + 1), top))
        if edges:
            return edges[-1]
    return -1


def _word_edges(body: str, low: int, high: int) -> Iterator[int]:
    """Yield the places in [low, high] at which a cut parts no word: beside white space, in scripts without spaces."""
    for edge in _WORD_EDGE.finditer(body, low, high + 1):
        at = edge.start()
        if at > high:
            return
        if body[at - 1].isspace() or body[at].isspace() or unicodedata.category(body[at])[0] != "M":
            yield at
