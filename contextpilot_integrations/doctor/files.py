"""Prompts in files: message lists, request bodies and texts."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from contextpilot_core import RequestError
from contextpilot_core.diagnose import PromptLike
from contextpilot_core.files import parse, read_json_lines, read_text

_FIX = "rename plain text to .txt"


def read_prompts(path: str | PathLike[str]) -> list[PromptLike]:
    """Return the prompts of a file, in order.

    ``.json`` holds a list of messages, a request body (``messages`` or ``prompt``, and ``tools``), a text, or a list
    of these; ``.jsonl`` one of these per line; any other file is one prompt as text.

    Raises:
        RequestError: the file cannot be read, is no JSON although its name says so, or a value has another shape.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".jsonl":
        lines = read_json_lines(path, fix=_FIX, error=RequestError)
        return [prompt for where, value in lines for prompt in _prompts(value, where)]
    text = read_text(path, fix="give a file of UTF-8 text", error=RequestError)
    return _prompts(parse(text, str(path), fix=_FIX, error=RequestError), str(path)) if suffix == ".json" else [text]


def _prompts(value: Any, where: str) -> list[PromptLike]:
    several = isinstance(value, list) and not (value and all(_is_message(entry) for entry in value))
    prompts: list[PromptLike] = value if several else [value]
    for number, prompt in enumerate(prompts, start=1):
        _check_body(prompt, f"{where}, prompt {number}" if several else where)
    return prompts


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def _check_body(prompt: Any, where: str) -> None:
    """Raise `RequestError` unless tools, contents and calls have the shapes that requests have."""
    body = prompt if isinstance(prompt, Mapping) else {"messages": prompt}
    _check(body, "tools", list, "a list of definitions", where)
    messages = body.get("messages", body.get("prompt"))
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping):
            _check(message, "content", (str, list), "a text or a list of parts", where)
            _check(message, "tool_calls", list, "a list of calls", where)


def _check(holder: Mapping[str, Any], name: str, kinds: Any, rule: str, where: str) -> None:
    value = holder.get(name)
    if value is not None and not isinstance(value, kinds):
        raise RequestError(
            f"{where}: {name!r} is a {type(value).__name__}, it must be {rule}; mend it, or leave it out"
        )
