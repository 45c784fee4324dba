"""What an answer is to a conversation: whether there is something to keep of it, and that there is one of it."""

from collections.abc import Mapping
from typing import Any

from contextpilot_core import AnswerError, RequestError

_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})


def says_something(content: object) -> bool:
    """Tell whether the content of an answer is more than nothing, white space or thoughts.

    An answer that is not (cut off while it thought, or filtered) is no turn: servers refuse a history with an empty
    message, and so every later question. ``content``: a str, or a list of parts, each a str or a mapping.
    """
    if isinstance(content, str):
        return bool(content.strip())
    if isinstance(content, Mapping):
        kind = content.get("type")
        said = [content[name] for name in ("text", "refusal") if name in content]
        return kind not in _THOUGHTS and (not said or any([says_something(each) for each in said]))
    return isinstance(content, (list, tuple)) and any([says_something(part) for part in content])


def no_answer() -> AnswerError:
    """Return what is wrong with an answer of which not a single piece came."""
    return AnswerError(
        "the answer has not a single piece: what came was empty, or something else (a page of HTML, for example); see "
        "that the base URL is that of a model server (it usually ends in /v1), and what stands between"
    )


def refuse_more_than_one(options: Mapping[str, Any]) -> None:
    """Check how many answers the options of a request ask for. Raises `RequestError` for other than one.

    A conversation goes on from one answer, and the pieces of several would be mixed.
    """
    for n in (options.get("n"), (options.get("extra_body") or {}).get("n")):
        if isinstance(n, (int, float, str)) and n != 1:
            raise RequestError(
                f"n={n!r} asks for other than one answer, and a conversation goes on from one; leave n out, and ask "
                "once for each answer that you want (without a session, so that none is in another one's history)"
            )


def room_for(window: int | None, options: Mapping[str, Any]) -> int | None:
    """Return the most tokens of a prompt in a window that it shares with its answer; None for no limit.

    ``options``: of the request. A limit of the answer that leaves no prompt any room, or is no number of tokens (-1 is
    "no limit" for some servers), is not counted: whether to take it is for the server to say.
    """
    if window is None:
        return None
    limits = (options.get(name) for name in ("max_completion_tokens", "max_tokens"))
    answer = next((limit for limit in limits if isinstance(limit, int)), 0)
    return window - answer if 0 <= answer < window else window
