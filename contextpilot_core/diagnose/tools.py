"""Tool definitions: one form for equal sets, and how two lists differ."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from contextpilot_core.errors import RequestTypeError

ToolChange = Literal["tool_order", "tool_keys", "tool_set"]


def canonical_tools(tools: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the same tools in one order: equal sets of tools become equal bytes, however they are listed.

    Tools are sorted by name, keys at every level, and the names in ``required`` (their order means nothing); exact
    repeats are kept once. Other lists (``enum``) keep their order. The tools given are not changed.

    Raises:
        RequestTypeError: a tool is no mapping, or holds what JSON cannot.
    """
    found: dict[str, dict[str, Any]] = {}
    for position, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RequestTypeError(
                f"tools[{position}] is a {type(tool).__name__}; give definitions in OpenAI form, as mappings"
            )
        try:
            text = json.dumps(_sorted(tool), sort_keys=True, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestTypeError(
                f"tools[{position}] holds a value that JSON cannot ({error}); give plain JSON values"
            ) from error
        found[text] = json.loads(text)
    return [found[text] for text in sorted(found, key=lambda text: (tool_name(found[text]), text))]


def tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a definition (chat or responses form); empty when it has none."""
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
    return name if isinstance(name, str) else ""


def tool_change(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> ToolChange | None:
    """Say how two lists of tools differ: same set in another order, same tools written otherwise, other tools.

    Judged on their canonical form, so an order is only called an order when the sets are equal. None: equal bytes.
    """
    if json.dumps(list(a), default=str) == json.dumps(list(b), default=str):
        return None
    first, second = canonical_tools(a), canonical_tools(b)
    if first != second or len(a) != len(b):
        return "tool_set"
    in_order = [canonical_tools([tool]) for tool in a] == [canonical_tools([tool]) for tool in b]
    return "tool_keys" if in_order else "tool_order"


def _sorted(value: Any) -> Any:
    """Return a copy with the names in every ``required`` sorted."""
    if isinstance(value, Mapping):
        return {
            key: sorted(inner) if key == "required" and _names(inner) else _sorted(inner)
            for key, inner in value.items()
        }
    return [_sorted(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
