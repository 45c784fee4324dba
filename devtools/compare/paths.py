"""Follow one plan, chat, retrieval, event and batch through the code of the folder that this is started in.

Prints one JSON object: lines and files of the packages; per walk the moves between files and between rooms, calls that
go from one to another, and the classes of ours that were made on the way. A room is what stands directly in a package:
a folder, or a file by itself.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

PACKAGES = ("contextpilot_core", "contextpilot_integrations")
TEXTS = [" ".join(f"{number}-{word}" for word in range(80)) for number in range(20)]


class Walk:
    """What happens while it is recorded."""

    def __init__(self) -> None:
        self.files = self.rooms = 0
        self.classes: set[str] = set()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is called in this thread."""
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        made = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        if made is not None and type(made).__module__.split(".")[0] in PACKAGES:
            self.classes.add(type(made).__name__)
        here = _place(frame)
        if here is None:
            return
        before = frame.f_back
        while before is not None and _place(before) is None:
            before = before.f_back
        there = _place(before) if before is not None else None
        self.files += here != there
        self.rooms += there is None or here[:2] != there[:2]


def _place(frame: FrameType) -> tuple[str, ...] | None:
    """Return the parts of a file's path from its package on; None outside the packages."""
    parts = frame.f_code.co_filename.split("/")
    for package in PACKAGES:
        if package in parts:
            return tuple(parts[parts.index(package) :])
    return None


def plan(walk: Walk, turn: int, blocks: int) -> None:
    """``engine.plan`` and its messages."""
    from contextpilot_core import ReuseEngine

    engine, history = ReuseEngine(), []
    if turn == 2:
        history = [*engine.plan(TEXTS[:blocks], query="one").messages, {"role": "assistant", "content": "yes"}]
    with walk.recorded():
        assert engine.plan(TEXTS[2 : blocks + 2], query="two", messages=history).messages


def chat(walk: Walk) -> None:
    """``client.chat``, second turn."""
    from contextpilot_integrations.serving.client import ContextPilotClient

    delta = SimpleNamespace(content="Yes.", tool_calls=None)
    chunk = SimpleNamespace(choices=[SimpleNamespace(index=0, finish_reason="stop", delta=delta)], usage=None)
    server = SimpleNamespace(completions=SimpleNamespace(create=lambda **options: iter([chunk])))
    client = ContextPilotClient(SimpleNamespace(chat=server, completions=None), model="m")
    client.chat(TEXTS[:8], "one", session_id="u")
    with walk.recorded():
        client.chat(TEXTS[2:10], "two", session_id="u")


def retriever(walk: Walk) -> None:
    """LangChain's swap-in retriever."""
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableLambda

    from contextpilot_integrations.langchain import ContextPilotRetriever

    found = RunnableLambda(lambda query: [Document(text) for text in TEXTS[:8]])
    hook = ContextPilotRetriever(base_retriever=found)
    hook.invoke("one", session_id="u")
    with walk.recorded():
        hook.invoke("two", session_id="u")


def event(walk: Walk) -> None:
    """One batch of cache events, from its bytes to the mirror."""
    import msgspec

    from contextpilot_core import KVMirror

    try:
        from contextpilot_integrations.serving.events.codec import EventDecoder
        from contextpilot_integrations.serving.events.feed import EventFeed
    except ImportError:  # before the rooms
        from contextpilot_integrations.serving.event_codec import EventDecoder  # type: ignore[no-redef]
        from contextpilot_integrations.serving.event_feed import EventFeed  # type: ignore[no-redef]
    feed = EventFeed(KVMirror(), EventDecoder(), rank=0, name="e")
    stored: list[Any] = ["BlockStored", [1, 2], None, list(range(32)), 16, None]
    payload = msgspec.msgpack.encode([1.0, [stored], 0])
    with walk.recorded():
        feed.take(0, payload)


def batch(walk: Walk) -> None:
    """``engine.plan_batch`` of twelve requests."""
    from contextpilot_core import ContextRequest, ReuseEngine

    requests = [ContextRequest(blocks=TEXTS[number : number + 8]) for number in range(12)]
    with walk.recorded():
        ReuseEngine().plan_batch(requests)


WALKS: dict[str, Callable[[Walk], None]] = {
    "plan and messages, first turn, 12 documents": lambda walk: plan(walk, 1, 12),
    "plan and messages, second turn, 8 documents": lambda walk: plan(walk, 2, 8),
    "client.chat, second turn": chat,
    "LangChain retriever": retriever,
    "one batch of cache events": event,
    "plan_batch, 12 requests": batch,
}


def measured() -> dict[str, Any]:
    """Return the figures of the folder that this runs in."""
    files = [file for package in PACKAGES for file in sorted(Path(package).rglob("*.py"))]
    found: dict[str, Any] = {
        "files": len(files),
        "lines": sum(len(file.read_text("utf-8").splitlines()) for file in files),
        "walks": {},
    }
    for name, walk_through in WALKS.items():
        walk = Walk()
        walk_through(walk)
        found["walks"][name] = {"files": walk.files, "rooms": walk.rooms, "classes": sorted(walk.classes)}
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured()) + "\n")
