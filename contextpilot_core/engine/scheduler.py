"""Let requests that come at about the same time wait for each other, and send them in the order that reuses most.

    scheduler = WindowScheduler(engine)
    async with scheduler.turn(request) as plan:
        stream = await client.chat.completions.create(messages=plan.messages, stream=True, ...)
    async for chunk in stream: ...

A window gathers requests of one namespace and is planned as a whole (`ReuseEngine.plan_window`). Then they go one after
the other: the next when the one before was sent, which is when its block is left. Answers are not waited for.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from contextpilot_core.checks import number, whole_number
from contextpilot_core.engine.engine import ReuseEngine
from contextpilot_core.errors import ConfigError, RequestTypeError
from contextpilot_core.plan import Plan
from contextpilot_core.tokens import estimate_tokens
from contextpilot_core.types import ContextRequest, OnePerProcess

_LONGEST = 3_600_000
"""Milliseconds that a window may wait at most: an hour."""


class WindowScheduler(OnePerProcess):
    """For any number of tasks; those of different event loops do not wait for each other.

    A window is planned ``max_wait_ms`` milliseconds after its first request came, or as soon as ``max_requests`` are
    there. It ends as long after that at the latest, or when the next one is planned: whoever has not gone until then
    goes at once, still in order. So nobody waits for more than the window before and the own. Planning happens in the
    event loop; it takes about as long as planning the requests one by one.

    Raises:
        ConfigError: a value breaks its rule.
    """

    def __init__(self, engine: ReuseEngine, *, max_wait_ms: float = 20.0, max_requests: int = 32) -> None:
        if not isinstance(engine, ReuseEngine):
            raise ConfigError(f"engine must be a ReuseEngine, got {type(engine).__name__}; give one")
        self._engine = engine
        self._seconds = number("max_wait_ms", max_wait_ms, "20 is usual", least=0, most=_LONGEST) / 1000
        self._max_requests = whole_number("max_requests", max_requests, "32 is usual")
        self._lanes: dict[tuple[asyncio.AbstractEventLoop, str], _Lane] = {}  # those in which somebody waits

    @property
    def engine(self) -> ReuseEngine:
        """The engine that plans the windows."""
        return self._engine

    def overlap(self, request: ContextRequest) -> int:
        """Return how many tokens, by estimate, ``request`` shares with one of those that gather now, the most."""
        lane = self._lanes.get((asyncio.get_running_loop(), request.namespace))
        own = _texts(request)
        shared = [own & _texts(other) for other in (lane.gathering() if lane is not None else ())]
        return max((sum(map(estimate_tokens, texts)) for texts in shared), default=0)

    @asynccontextmanager
    async def turn(self, request: ContextRequest) -> AsyncIterator[Plan]:
        """Wait for the turn of ``request``: its plan, committed when the block ends well, taken back when it does not.

        A request that is cancelled while it waits leaves no trace.

        Raises:
            RequestError: this request breaks a rule; that does not concern the others of its window.
        """
        loop = asyncio.get_running_loop()
        request = _at_rest(request)
        key = loop, request.namespace
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._engine, loop, self._seconds, self._max_requests)
        place = _Place(request, loop.create_future())
        lane.join(place)
        try:
            await place.ready
            if place.plan is None:
                place.plan = self._engine.plan(**vars(request), commit=False)
            yield place.plan
            self._engine.commit(place.plan)
        finally:
            if place.plan is not None:
                self._engine.abandon(place.plan)  # nothing happens after a commit
            lane.leave(place)
            if lane.empty and self._lanes.get(key) is lane:
                del self._lanes[key]


@dataclass(eq=False)
class _Place:
    """A request that waits. ``ready`` is done when it may go; without a plan it has to be planned alone."""

    request: ContextRequest
    ready: asyncio.Future[None]
    plan: Plan | None = None


class _Lane:
    """The requests of one namespace: those that gather, and those of the window that is being sent."""

    def __init__(self, engine: ReuseEngine, loop: asyncio.AbstractEventLoop, seconds: float, max_requests: int) -> None:
        self._engine, self._loop = engine, loop
        self._seconds, self._max_requests = seconds, max_requests
        self._gathering: list[_Place] = []
        self._planned: deque[_Place] = deque()  # in the order of the schedule
        self._sending: _Place | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._ending: asyncio.TimerHandle | None = None

    @property
    def empty(self) -> bool:
        """Whether nobody waits or is being sent."""
        return not self._gathering and not self._planned and self._sending is None

    def gathering(self) -> list[ContextRequest]:
        """Return the requests that are not planned yet."""
        return [place.request for place in self._gathering]

    def join(self, place: _Place) -> None:
        """Let a request gather with others."""
        self._gathering.append(place)
        if len(self._gathering) == self._max_requests:
            self._close()
        elif len(self._gathering) == 1:
            self._closing = self._loop.call_later(self._seconds, self._close)

    def leave(self, place: _Place) -> None:
        """Go on without a request that was sent or has given up."""
        if place is self._sending:
            self._advance()
        elif place in self._gathering:
            self._gathering.remove(place)
            if not self._gathering:
                _cancel(self._closing)

    def _close(self) -> None:
        """Plan those that have gathered; the window before ends."""
        _cancel(self._closing)
        _cancel(self._ending)
        self._end()
        gathered, self._gathering = self._gathering, []
        self._planned.extend(self._scheduled(gathered))
        self._ending = self._loop.call_later(self._seconds, self._end)
        self._advance()

    def _scheduled(self, places: list[_Place]) -> list[_Place]:
        with suppress(Exception):  # what is wrong with a request is raised to its caller, where it is planned alone
            batch = self._engine.plan_window([place.request for place in places], commit=False)
            for place, plan in zip(places, batch.plans, strict=True):
                place.plan = plan
            return [places[position] for position in batch.schedule]
        return places

    def _advance(self) -> None:
        """Let the next one go; those that were cancelled are passed over."""
        self._sending = None
        while self._planned and self._sending is None:
            place = self._planned.popleft()
            if not place.ready.cancelled():
                place.ready.set_result(None)
                self._sending = place

    def _end(self) -> None:
        """Let all go that are left."""
        while self._planned:
            self._advance()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _at_rest(request: ContextRequest) -> ContextRequest:
    """Return a request that can be read twice."""
    if not isinstance(request, ContextRequest) or not isinstance(request.namespace, str):
        raise RequestTypeError(f"a request must be a ContextRequest of a str namespace, got {type(request).__name__}")
    if isinstance(request.blocks, Iterator) or isinstance(request.messages, Iterator):
        return replace(request, blocks=tuple(request.blocks), messages=tuple(request.messages))
    return request


def _texts(request: ContextRequest) -> frozenset[str]:
    """Return the texts of a request's blocks; what is none is refused when it is planned."""
    blocks = request.blocks if isinstance(request.blocks, Sequence) else ()
    return frozenset(text for block in blocks if isinstance(text := getattr(block, "text", block), str))
