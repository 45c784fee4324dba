"""What the pieces of a streamed answer add up to, in the shapes in which servers send them."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

_THOUGHT = re.compile("reasoning|think|thought")
"""Is in every name that servers have for thoughts: ``reasoning_content``, ``thinking_blocks``, ``thought`` ..."""
_TEXTS = (None, "text", "output_text")
_GROWING = frozenset({"text", "summary", "thinking", "data", "signature"})


class AnswerPieces:
    """The pieces of one answer so far. ``has_begun``: something was generated, be it text, thoughts or a call."""

    def __init__(self) -> None:
        self.has_begun = False
        self.calls = ToolCalls()
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._thoughts: dict[str, Any] = {}

    def add(self, text: Any, delta: Any = None) -> str:
        """Take the ``text`` of a piece, a str or a list of parts, and what else its ``delta`` has.

        Returns what the reader gets: the text, and what the model says when it refuses.
        """
        said, refused = _text(text), _str(getattr(delta, "refusal", None))
        calls = getattr(delta, "tool_calls", None)
        calls = calls if isinstance(calls, (list, tuple)) else ()
        for call in calls:
            self.calls.add(call)
        thought = any([self._think(name, getattr(delta, name)) for name in _names(delta) if _THOUGHT.search(name)])
        self.has_begun |= bool(said or refused or calls or thought)
        if said or refused:
            self._texts.append(said + refused)
        if refused:
            self._refusals.append(refused)
        return said + refused

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self._texts)

    @property
    def message(self) -> dict[str, Any]:
        """The answer in OpenAI form, its thoughts under the names that the server has for them."""
        message = {"role": "assistant", "content": self.text, **deepcopy(self._thoughts)}
        if self._refusals:
            message["refusal"] = "".join(self._refusals)
        if calls := self.calls.all():
            message["tool_calls"] = calls
        return message

    def _think(self, name: str, thought: Any) -> bool:
        """Take a thought; tell whether there was one."""
        if not thought or not isinstance(thought, str | list):
            return False
        known = self._thoughts.setdefault(name, type(thought)())
        if isinstance(known, str) and isinstance(thought, str):
            self._thoughts[name] = known + thought
        elif isinstance(known, list) and isinstance(thought, list):
            for part in thought:
                _add_part(known, part)
        else:
            return False
        return True


class ToolCalls:
    """The tool calls of one answer, put together from their pieces.

    A piece goes on with the call of its id; without an id with the latest one of its index; without both with the
    latest one. A new call begins with an id that is new and a name, whatever its index was used for; arguments under a
    new id go on, as some servers make up one for every piece. Without an id it begins with a name where that call has
    another one and arguments already, or the same name and all of its arguments.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int | None, dict[str, Any]]] = []
        self._latest: dict[str, Any] | None = None

    def add(self, piece: Any) -> None:
        """Take a piece: anything with ``index``, ``id`` and ``function``, of which each may be missing."""
        index, call_id, function = (getattr(piece, name, None) for name in ("index", "id", "function"))
        index, call_id = (index if isinstance(index, int) else None), _str(call_id)
        name, arguments = _str(getattr(function, "name", None)), getattr(function, "arguments", None) or ""
        if not isinstance(arguments, str):  # some servers send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        possible = [(at, call) for at, call in self._calls if at == index or None in (at, index)]
        call = next((each for _, each in possible if call_id and each["id"] == call_id), None)
        if call is None:
            under = [each for at, each in possible if at == index or index is None] or [each for _, each in possible]
            new_id = call_id if name or function is None else None
            call = self._going_on(under, new_id, name, arguments)
        if call is None:
            call = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append((index, call))
        self._latest, known = call, call["function"]
        call["id"] = call["id"] or call_id or ""
        known["name"] += "" if name == known["name"] else name  # some repeat it in every piece
        known["arguments"] += arguments

    def all(self) -> list[dict[str, Any]]:
        """Return the calls in the order of their indexes; those without one behind what came before them."""
        place, placed = 0, list[tuple[int, dict[str, Any]]]()
        for index, call in self._calls:
            place = place if index is None else index
            placed.append((place, call))
        return [deepcopy(call) for _, call in sorted(placed, key=lambda each: each[0])]

    def _going_on(
        self, under: list[dict[str, Any]], call_id: str | None, name: str, arguments: str
    ) -> dict[str, Any] | None:
        """Return the call that a piece without a known id goes on with, of those ``under`` its index; None for none."""
        call = under[-1] if under else None
        if any([each is self._latest for each in under]) or not (under or call_id or name):
            call = self._latest
        if call is None or (call_id and call["id"]):
            return None
        has = call["function"]
        is_next = name != has["name"] or (arguments.strip() and _is_whole(has["arguments"]))
        return None if name and has["arguments"] and is_next else call


def _str(value: Any) -> str:
    """Return a text, "" for what is none."""
    return value if isinstance(value, str) else ""


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (RecursionError, ValueError):
        return False


def _names(delta: Any) -> list[str]:
    """Return the names of the fields of a delta, also of those that its class does not know."""
    return [*getattr(delta, "__dict__", ()), *(getattr(delta, "model_extra", None) or ())]


def _text(content: Any) -> str:
    """Return the text of a content: it, or the text parts of a list, joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        return ""
    return "".join([part if isinstance(part, str) else _text(_part(part)) for part in content])


def _part(part: Any) -> Any:
    kind, text, refusal = [
        part.get(name) if isinstance(part, Mapping) else getattr(part, name, None)
        for name in ("type", "text", "refusal")
    ]
    return refusal if kind == "refusal" else text if kind in _TEXTS else None


def _add_part(parts: list[Any], new: Any) -> None:
    """Append a part of a thought, or let the part with its index grow."""
    for part in parts if isinstance(new, Mapping) and new.get("index") is not None else ():
        if isinstance(part, dict) and (part.get("index"), part.get("type")) == (new["index"], new.get("type")):
            for name, value in new.items():
                if name in _GROWING and isinstance(value, str) and isinstance(part.get(name), str):
                    part[name] += value
                elif value is not None:
                    part[name] = value
            return
    parts.append(deepcopy(new))
