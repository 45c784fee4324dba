"""Prompts in files: message lists, request bodies and texts."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from contextpilot_core import RequestError
from contextpilot_core.diagnose import PromptLike


def read_prompts(path: str | PathLike[str]) -> list[PromptLike]:
    """Return the prompts of a file, in order.

    ``.json`` holds a list of messages, a request body (``messages`` or ``prompt``, and ``tools``), a text, or a list
    of these; ``.jsonl`` one of these per line; any other file is one prompt as text.

    Raises:
        RequestError: the file cannot be read, or is no JSON although its name says so.
    """
    file = Path(path)
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} cannot be read ({type(error).__name__}); give a file of UTF-8 text") from error
    suffix = file.suffix.lower()
    if suffix == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        return [prompt for number, line in lines for prompt in _prompts(line, f"{file}, line {number}")]
    return _prompts(text, str(file)) if suffix == ".json" else [text]


def _prompts(text: str, where: str) -> list[PromptLike]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where} is no JSON ({error.__class__.__name__}); rename plain text to .txt") from error
    if isinstance(value, list) and not (value and all(_is_message(entry) for entry in value)):
        return value
    return [value]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value
