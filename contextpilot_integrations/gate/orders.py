"""The orders in which the reuse engine would send the documents of a series of questions."""

from collections.abc import Sequence
from typing import Literal

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine import ReuseEngine
from contextpilot_core.types import ContextRequest

Mode = Literal["online", "batch"]


def engine_orders(
    contexts: Sequence[Sequence[str]], *, mode: Mode = "online", cache_tokens: int | None = 40_000
) -> list[tuple[int, ...]]:
    """Return, per context, the positions of its distinct documents in the order of the prompt.

    "online": one request after the other, in the order given; "batch": all of them planned together. The engine moves
    whatever gains one cached token: more than in use, where it weighs the note and whole KV blocks. An evaluation
    wants every order that could come.
    """
    engine = ReuseEngine(EngineConfig(cache_tokens=cache_tokens, note="none", kv_block=1))
    if mode == "batch":
        return [plan.order for plan in engine.plan_batch([ContextRequest(blocks=blocks) for blocks in contexts])]
    return [engine.plan(blocks).order for blocks in contexts]
