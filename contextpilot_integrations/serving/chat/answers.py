"""What an answer is to a conversation: whether there is something to keep of it, and that there is one of it."""

from collections.abc import Mapping
from typing import Any

from contextpilot_core import AnswerError, RequestError, RequestTypeError
from contextpilot_core.checks import shown

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


_PLANNED = ("messages", "prompt")
_BESIDE = (*_PLANNED, "model", "stream")
"""What an ``extra_body`` would put in place of what is sent: client libraries lay it over the request."""


def check_options(options: Mapping[str, Any]) -> None:
    """Check the options of a request: they neither bring its messages, nor ask for other than one answer.

    A conversation goes on from one answer, and the pieces of several would be mixed.

    Raises:
        RequestTypeError: ``extra_body`` is no mapping.
        RequestError: they do.
    """
    extra = options.get("extra_body")
    if not isinstance(extra, Mapping | None):
        raise RequestTypeError(
            f"extra_body is a {type(extra).__name__}; it must be a dict of the server's options; leave it out"
        )
    for name in [name for name in _PLANNED if name in options]:
        raise RequestError(
            f"{name} cannot be given, it is built here: give the question as query, its documents as blocks, a system "
            "prompt as instructions; earlier turns are kept by session_id"
        )
    for name in [name for name in _BESIDE if name in (extra or {})]:
        raise RequestError(
            f"extra_body holds {name!r}, which would go to the server in place of what is planned here; leave it out"
        )
    for n in (options.get("n"), (extra or {}).get("n")):
        if isinstance(n, (int, float, str)) and n != 1:
            raise RequestError(
                f"n={shown(n)} asks for other than one answer, and a conversation goes on from one; leave n out, and "
                "ask once for each answer that you want (without a session, so that none is in another one's history)"
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
