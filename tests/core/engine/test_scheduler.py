"""The scheduler of windows, in virtual time: order of release, bounds of waiting, cancellation, errors of one."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import (
    ConfigError,
    ContextRequest,
    DuplicateRequestError,
    EngineConfig,
    Plan,
    RequestTypeError,
    ReuseEngine,
)
from contextpilot_core.engine.scheduler import WindowScheduler
from tests.core.conftest import body
from tests.core.virtual_loop import run

WAIT = 20
"""Milliseconds that a window gathers, the default."""


def request(*names: str, **fields: object) -> ContextRequest:
    return ContextRequest(blocks=[body(name, 20) for name in names], **fields)  # type: ignore[arg-type]


@dataclass
class Traffic:
    """Requests that come at their times, and what became of them; all times in ms."""

    scheduler: WindowScheduler
    released: list[tuple[str, int]] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    errors: dict[str, Exception] = field(default_factory=dict)

    async def send(self, name: str, asked: ContextRequest, *, at: int = 0, takes: int = 0) -> None:
        await asyncio.sleep(at / 1000)
        try:
            async with self.scheduler.turn(asked) as plan:
                self.released.append((name, now()))
                self.plans[name] = plan
                await asyncio.sleep(takes / 1000)
            self.sent.add(name)
        except ValueError as error:
            self.errors[name] = error

    def order(self) -> str:
        return "".join(name for name, _ in self.released)


def now() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


def traffic(**options: object) -> Traffic:
    engine = ReuseEngine(EngineConfig(note="none", kv_block=1))
    return Traffic(WindowScheduler(engine, **options))  # type: ignore[arg-type]


def check_sound(engine: ReuseEngine, committed: int) -> None:
    """Nothing is in flight or reserved, and only what was committed is known."""
    engine.check_integrity()
    stats = engine.stats()
    assert (stats.in_flight, stats.live_requests, stats.committed) == (0, committed, committed)
    assert not any(space._opened for space in engine._namespaces._known.values())


def test_a_window_is_sent_in_its_schedule():
    it = traffic()

    async def main() -> None:
        await asyncio.gather(*(it.send(name, request(*name)) for name in ("abx", "pq1", "yba", "q2p")))

    run(main())
    assert [name for name, _ in it.released] in (["abx", "yba", "pq1", "q2p"], ["pq1", "q2p", "abx", "yba"])
    assert {time for _, time in it.released} == {WAIT}
    assert sum(plan.expected_reused_tokens for plan in it.plans.values()) > 0
    check_sound(it.scheduler.engine, 4)


def test_the_next_goes_when_the_one_before_was_sent():
    it = traffic()

    async def main() -> None:
        await asyncio.gather(*(it.send(name, request("a", name), takes=4) for name in "123"))

    run(main())
    assert it.released == [("1", 20), ("2", 24), ("3", 28)]


def test_a_slow_sender_holds_the_others_up_for_one_wait_only():
    it = traffic()

    async def main() -> None:
        await asyncio.gather(*(it.send(name, request("a", name), takes=60_000) for name in "123"))

    run(main())
    assert it.released == [("1", 20), ("2", 40), ("3", 40)]


def test_a_full_window_is_planned_at_once_and_ends_the_one_before():
    it = traffic(max_requests=2)

    async def main() -> None:
        await asyncio.gather(*(it.send(name, request("a", name), takes=1_000) for name in "123456"))

    run(main())
    assert it.order() == "123456"
    assert {time for _, time in it.released[:5]} == {0}
    assert it.released[5] == ("6", WAIT)


def test_namespaces_do_not_wait_for_each_other():
    it = traffic()

    async def main() -> None:
        await asyncio.gather(
            it.send("1", request("a", namespace="x"), takes=1_000),
            it.send("2", request("a", namespace="y"), at=5, takes=1_000),
            it.send("3", request("a", namespace="x"), at=10),
        )

    run(main())
    assert it.released == [("1", 20), ("2", 25), ("3", 40)]


def test_without_waiting_those_of_the_same_moment_are_a_window():
    it = traffic(max_wait_ms=0)

    async def main() -> None:
        await asyncio.gather(*(it.send(name, request(*name)) for name in ("ab1", "pq1", "ab2")))

    run(main())
    assert {time for _, time in it.released} == {0}
    assert it.scheduler.engine.stats().planned == 3
    assert sum(plan.expected_reused_tokens > 0 for plan in it.plans.values()) >= 1


def test_an_error_reaches_its_caller_only():
    it = traffic()

    async def main() -> None:
        await asyncio.gather(
            it.send("1", request("a", "b", request_id="same")),
            it.send("2", ContextRequest(blocks=[3])),  # type: ignore[list-item]
            it.send("3", request("b", "a", request_id="same")),
            it.send("4", ContextRequest(blocks=iter(request("b", "a").blocks))),  # type: ignore[arg-type]
            it.send("5", "no request"),  # type: ignore[arg-type]
        )

    run(main())
    assert it.order() == "14"
    assert [len(it.plans[name].order) for name in "14"] == [2, 2]
    assert {name: type(error) for name, error in it.errors.items()} == {
        "2": RequestTypeError, "3": DuplicateRequestError, "5": RequestTypeError,
    }  # fmt: skip
    assert str(it.errors["2"]).startswith("blocks[0]")
    check_sound(it.scheduler.engine, 2)


def test_a_request_that_fails_to_be_sent_is_taken_back():
    it = traffic()

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with it.scheduler.turn(request("a", request_id="same")):
                raise ZeroDivisionError
        await it.send("1", request("a", request_id="same"))

    run(main())
    assert it.order() == "1"
    check_sound(it.scheduler.engine, 1)


@pytest.mark.parametrize(("at", "sent"), [(10, "13"), (22, "13"), (26, "123")])
def test_cancelled_while_gathering_or_planned_or_being_sent(at: int, sent: str):
    it = traffic()

    async def main() -> None:
        tasks = [asyncio.create_task(it.send(name, request("a", name), takes=5)) for name in "123"]
        await asyncio.sleep(at / 1000)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [False, True, False]

    run(main())
    assert it.order() == sent
    check_sound(it.scheduler.engine, 2)


def test_cancelled_in_the_moment_in_which_its_turn_comes():
    it = traffic()

    async def main() -> None:
        gate = asyncio.Event()

        async def first() -> None:
            async with it.scheduler.turn(request("a", "1")):
                await gate.wait()

        tasks = [asyncio.create_task(first())]
        tasks += [asyncio.create_task(it.send(name, request("a", name))) for name in "23"]
        await asyncio.sleep(0.025)
        gate.set()
        tasks[1].cancel()
        await asyncio.wait(tasks)

    run(main())
    assert it.released == [("3", 25)]
    check_sound(it.scheduler.engine, 2)


def test_the_timers_of_a_window_do_not_touch_the_next():
    full = traffic(max_requests=2)

    async def two_full_windows_and_a_third() -> None:
        times = {"1": 0, "2": 0, "3": 10, "4": 10, "5": 35}
        await asyncio.gather(*(full.send(name, request("a", name), at=at, takes=100) for name, at in times.items()))

    run(two_full_windows_and_a_third())
    assert full.released == [("1", 0), ("2", 10), ("3", 10), ("4", 30), ("5", 55)]
    given_up = traffic()

    async def one_gives_up() -> None:
        times = {"1": 0, "2": 25, "3": 40}
        sends = [given_up.send(name, request("a", name), at=at, takes=100) for name, at in times.items()]
        tasks = [asyncio.create_task(send) for send in sends]
        await asyncio.sleep(0.03)
        tasks[1].cancel()
        await asyncio.wait(tasks)

    run(one_gives_up())
    assert given_up.released == [("1", 20), ("3", 60)]


def test_overlap_is_with_those_that_gather():
    it = traffic()
    size = len(body("a", 20)) // 4

    async def main() -> None:
        asked = [
            request("a", "b"),
            request("b", "c", "d"),
            request("d", namespace="other"),
            ContextRequest(blocks=None),
        ]  # type: ignore[arg-type]
        tasks = [asyncio.create_task(it.send(str(number), each)) for number, each in enumerate(asked)]
        assert it.scheduler.overlap(request("b")) == 0
        await asyncio.sleep(0.01)
        assert [it.scheduler.overlap(request(*names)) for names in ("b", "dxb", "ab", "x", "")] == [
            size, 2 * size, 2 * size, 0, 0,
        ]  # fmt: skip
        await asyncio.wait(tasks)
        assert it.scheduler.overlap(request("b")) == 0

    run(main())


def test_event_loops_are_apart_and_nothing_stays():
    it = traffic()
    for name in "12":
        run(it.send(name, request("a", "b")))
    assert it.released == [("1", WAIT), ("2", WAIT)]
    assert not it.scheduler._lanes
    check_sound(it.scheduler.engine, 2)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"max_wait_ms": -1}, "max_wait_ms=-1"),
        ({"max_wait_ms": float("nan")}, "max_wait_ms=nan"),
        ({"max_wait_ms": True}, "max_wait_ms=True"),
        ({"max_wait_ms": float("inf")}, r"max_wait_ms=inf must be a number of at least 0 and of at most 3.6e\+06"),
        ({"max_wait_ms": 10**400}, "max_wait_ms=1000"),
        ({"max_requests": 10**400}, "max_requests=1000"),
        ({"max_requests": 0}, "max_requests=0"),
        ({"max_requests": 2.5}, "max_requests=2.5"),
        ({"engine": None}, "NoneType"),
    ],
)
def test_wrong_values_are_refused(options: dict[str, object], rule: str):
    with pytest.raises(ConfigError, match=rule):
        WindowScheduler(**{"engine": ReuseEngine(), **options})  # type: ignore[arg-type]


requests = st.fixed_dictionaries(
    {
        "blocks": st.lists(st.sampled_from("abcdefgh"), max_size=4),
        "at": st.integers(0, 60),
        "takes": st.integers(0, 30),
        "space": st.sampled_from("xy"),
        "fate": st.sampled_from(["", "", "", "cancelled", "wrong"]),
        "after": st.integers(0, 60),
    }
)


@settings(max_examples=200, deadline=None)
@given(st.lists(requests, max_size=14), st.sampled_from([0, 5, 20]), st.integers(1, 6))
def test_nobody_is_lost_or_waits_longer_than_promised(stream: list[dict[str, Any]], wait: int, most: int):
    it = traffic(max_wait_ms=wait, max_requests=most)

    async def one(number: int, each: dict[str, Any]) -> None:
        blocks = [3] if each["fate"] == "wrong" else [body(name, 20) for name in each["blocks"]]
        asked = ContextRequest(blocks=blocks, namespace=each["space"], request_id=f"id {number}")  # type: ignore[arg-type]
        sending = asyncio.create_task(it.send(str(number), asked, at=each["at"], takes=each["takes"]))
        if each["fate"] == "cancelled":
            await asyncio.sleep(each["after"] / 1000)
            sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled() <= (each["fate"] == "cancelled")

    async def main() -> None:
        await asyncio.gather(*(one(number, each) for number, each in enumerate(stream)))

    run(main())
    assert not it.scheduler._lanes
    check_sound(it.scheduler.engine, len(it.sent))
    times = {int(name): time for name, time in it.released}
    for number, each in enumerate(stream):
        if each["fate"] != "cancelled":
            assert (str(number) in it.sent) == (each["fate"] == "")
            assert (str(number) in it.errors) == (each["fate"] == "wrong")
        if number in times:
            assert 0 <= times[number] - each["at"] <= 2 * wait
            overtaken_by = [
                other
                for other, time in times.items()
                if stream[other]["space"] == each["space"] and stream[other]["at"] > each["at"] and time < times[number]
            ]
            assert len(overtaken_by) < most
