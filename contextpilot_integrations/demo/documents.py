"""The demo's documents: titled chunks of the Python language reference, or of a folder of text files.

The text of a chunk starts with its title, so that model and search see where it belongs.
"""

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from contextpilot_core import ConfigError, ContextBlock, MissingExtraError, estimate_tokens
from contextpilot_core.files import read_text

MAX_TOKENS = 120
"""Tokens of a passage by `estimate_tokens`, about what the demo's model counts; tables of symbols take up to 200."""

SUFFIXES = (".md", ".markdown", ".rst", ".txt")

_UNDERLINE = re.compile(r"([=\-*~^\"'#+])\1{2,}")
_MARKDOWN_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")


def python_reference(max_tokens: int = MAX_TOKENS) -> list[ContextBlock]:
    """Return the Python language reference, which CPython ships as ``pydoc_data.topics``, as chunks.

    Raises `MissingExtraError` where the distribution left that module out.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise MissingExtraError(
            "this Python has no module pydoc_data.topics, the demo's default documents; "
            "install the full standard library (Debian: apt-get install libpython3-stdlib) or give --docs FOLDER"
        ) from error
    return chunk_texts(sorted(topics.items()), max_tokens)


def read_folder(folder: Path, max_tokens: int = MAX_TOKENS) -> list[ContextBlock]:
    """Return the text and Markdown files below ``folder``, in order of their paths, as chunks.

    Raises `ConfigError` when the folder does not exist, a file of it cannot be read, or none holds a text.
    """
    if not folder.is_dir():
        raise ConfigError(f"--docs {folder}: there is no such folder; give a folder that holds .md or .txt files")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    fix = "let it be read, or take it out of --docs"
    texts = [
        (path.relative_to(folder).as_posix(), read_text(path, fix=fix, error=ConfigError, errors="replace"))
        for path in paths
    ]
    chunks = chunk_texts(texts, max_tokens)
    if not chunks:
        raise ConfigError(f"--docs {folder}: no text in files named {', '.join('*' + s for s in SUFFIXES)}; add some")
    return chunks


def chunk_texts(texts: Sequence[tuple[str, str]], max_tokens: int = MAX_TOKENS) -> list[ContextBlock]:
    """Cut named texts into chunks of at most ``max_tokens`` estimated tokens; equal chunks are kept once."""
    chunks: dict[str, ContextBlock] = {}
    for name, text in texts:
        number = 0
        for title, body in sections(text, default_title=name):
            for piece in pack(body, max_tokens - estimate_tokens(title)):
                number += 1
                chunk = ContextBlock(id=f"{name}#{number}", title=title, text=f"{title}\n{piece}")
                chunks.setdefault(chunk.text, chunk)
    return list(chunks.values())


def sections(text: str, default_title: str) -> Iterator[tuple[str, str]]:
    """Yield ``(title, body)`` per section of a text with underlined or Markdown headings; bodies are never empty."""
    title, body = default_title, list[str]()
    lines = text.splitlines()
    fenced, skip = False, False
    for number, line in enumerate(lines):
        if skip:
            skip = False
            continue
        fenced ^= line.lstrip().startswith("```")
        heading = None if fenced else _heading(line, lines[number + 1] if number + 1 < len(lines) else "")
        if heading is None:
            body.append(line)
            continue
        skip = not line.startswith("#")
        if any(map(str.strip, body)):
            yield title, "\n".join(body)
        title, body = heading, []
    if any(map(str.strip, body)):
        yield title, "\n".join(body)


def _heading(line: str, following: str) -> str | None:
    """Return the title when ``line`` is a heading: ``# title``, or a title that the next line underlines."""
    markdown = _MARKDOWN_HEADING.fullmatch(line)
    if markdown:
        return markdown[1]
    is_underlined = _UNDERLINE.fullmatch(following.rstrip()) and len(following.rstrip()) >= len(line.rstrip())
    return line.strip() if line.strip() and not line[0].isspace() and is_underlined else None


def pack(body: str, max_tokens: int) -> Iterator[str]:
    """Join whole paragraphs into pieces of at most ``max_tokens``; a longer paragraph is cut at lines, then words."""
    return _joined(_units(body, max_tokens), "\n\n", max_tokens)


def _units(body: str, max_tokens: int) -> Iterator[str]:
    """Yield the paragraphs of ``body``, those above ``max_tokens`` in parts."""
    for paragraph in re.split(r"\n\s*\n", body.strip("\n")):
        if estimate_tokens(paragraph) <= max_tokens:
            if paragraph.strip():
                yield paragraph.rstrip()
            continue
        for separator, parts in (("\n", paragraph.splitlines()), (" ", _SENTENCE_END.split(paragraph))):
            if all(estimate_tokens(part) <= max_tokens for part in parts):
                yield from _joined(parts, separator, max_tokens)
                break
        else:
            yield from _joined(_short_words(paragraph, 4 * max_tokens), " ", max_tokens)


def _joined(parts: Iterable[str], separator: str, max_tokens: int) -> Iterator[str]:
    """Join neighbouring parts with ``separator`` as long as they stay within ``max_tokens``."""
    held = ""
    for part in parts:
        joined = f"{held}{separator}{part}" if held else part
        if held and estimate_tokens(joined) > max_tokens:
            yield held
            joined = part
        held = joined
    if held.strip():
        yield held


def _short_words(text: str, max_characters: int) -> list[str]:
    """Split at white space, and words beyond ``max_characters`` by force."""
    return [
        word[start : start + max_characters] for word in text.split() for start in range(0, len(word), max_characters)
    ]


STOP_WORDS = frozenset(
    "a an and are as at be by can do does for from has have how i if in into is it its me my not of on or so than that "
    "the their then there these this to was what when where which who why will with you your".split()
)


def terms(text: str) -> list[str]:
    """Split a text into the lower-case words and identifiers that the search works with."""
    return [word for word in re.findall(r"\w+", text.lower()) if word not in STOP_WORDS]
