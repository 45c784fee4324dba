"""One turn at a time per session: threads and tasks in one queue, and nobody waits for what cannot come."""

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_integrations.serving.chat.locks import TurnLocks


def in_thread(call):
    """Run in a thread of its own, and wait for it here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(20)


def test_a_session_is_known_as_long_as_someone_has_it():
    locks = TurnLocks()
    with locks.hold("u", "tenant"):
        assert locks.is_held(("tenant", "u"))
        assert not locks.is_held(("default", "u"))
        with locks.hold("u"), locks.hold("v", "tenant"):
            assert locks.is_held(("default", "u"))
    assert locks._seats == {}


def test_nobodys_session_is_never_held():
    locks = TurnLocks()

    async def three():
        async with locks.ahold(None) as held, locks.ahold(None):
            with locks.hold(None):
                held.keep()
                return locks._seats

    assert asyncio.run(three()) == {}


def test_an_error_inside_leaves_the_session_free():
    locks = TurnLocks()

    async def fails():
        async with locks.ahold("u"):
            raise OSError

    with pytest.raises(OSError):
        asyncio.run(fails())
    with pytest.raises(OSError), locks.hold("u"):
        raise OSError
    assert locks._seats == {}


def test_those_who_wait_come_in_the_order_in_which_they_came():
    locks, order, begun = TurnLocks(), [], []

    def turn(number):
        begun.append(number)
        with locks.hold("u"):
            order.append(number)

    with ThreadPoolExecutor(8) as pool:
        with locks.hold("u"):
            for number in range(8):
                pool.submit(turn, number)
                while len(locks._seats["default", "u"].waiting) <= number:
                    time.sleep(0.001)
            assert order == []
    assert order == begun == list(range(8))


def test_a_waiting_call_that_is_cancelled_leaves_the_session_free():
    async def scenario():
        locks = TurnLocks()
        order = []

        async def turn(name, seconds):
            async with locks.ahold("u"):
                order.append(name)
                await asyncio.sleep(seconds)

        first = asyncio.create_task(turn("first", 0.05))
        await asyncio.sleep(0.01)
        waiting = [asyncio.create_task(turn(f"waiting {n}", 0)) for n in range(3)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        return order, locks._seats

    assert asyncio.run(scenario()) == (["first", "waiting 1", "waiting 2"], {})


def test_a_handover_to_a_call_that_is_cancelled_at_once_is_passed_on():
    async def scenario():
        locks = TurnLocks()
        waiting = None

        async def turn():
            async with locks.ahold("u"):
                return "had it"

        async with locks.ahold("u"):
            waiting = asyncio.create_task(turn())
            await asyncio.sleep(0)
        waiting.cancel()  # it has the session by now, but has not run yet
        await asyncio.gather(waiting, return_exceptions=True)
        return await asyncio.wait_for(asyncio.create_task(turn()), 1), locks._seats

    assert asyncio.run(scenario()) == ("had it", {})


def test_threads_and_tasks_share_one_queue():
    locks, order = TurnLocks(), []

    def in_thread(name):
        with locks.hold("u"):
            order.append(name)

    async def scenario():
        async with locks.ahold("u"):
            thread = threading.Thread(target=in_thread, args=("thread",))
            thread.start()
            while not locks._seats["default", "u"].waiting:
                await asyncio.sleep(0.001)
            order.append("task")
        await asyncio.to_thread(thread.join)

    asyncio.run(scenario())
    assert order == ["task", "thread"]


def test_a_waiting_thread_that_is_interrupted_leaves_the_session_free(monkeypatch):
    def interrupted(turn):
        raise KeyboardInterrupt

    locks = TurnLocks()
    with locks.hold("u"):
        with monkeypatch.context() as patched:
            patched.setattr(Future, "result", interrupted)
            thread = threading.Thread(target=lambda: pytest.raises(KeyboardInterrupt, locks.hold("u").__enter__))
            thread.start()
            thread.join()
    assert locks._seats == {}


# --- what would never end ------------------------------------------------------------------------------------------


def test_a_session_is_not_waited_for_by_whoever_has_it():
    locks = TurnLocks()

    async def again():
        async with locks.ahold("u"):
            with pytest.raises(RequestError, match="session_id='u' has an answer that is still being streamed"):
                await locks.ahold("u").__aenter__()
            with pytest.raises(RequestError, match="waiting for it would never end"):
                locks.hold("u").__enter__()

    with locks.hold("u"), pytest.raises(RequestError, match="read it to its end or close it first"):
        locks.hold("u").__enter__()
    asyncio.run(again())
    assert locks._seats == {}


def test_a_call_does_not_stop_the_event_loop_for_a_task_of_it():
    """The task that has the session, or comes before, could not go on: an error instead of a hang."""
    locks = TurnLocks()

    async def scenario():
        async def turn():
            async with locks.ahold("u"):
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(turn())]
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="do not block an event loop"):
            locks.hold("u").__enter__()
        await asyncio.gather(*tasks)

        held, release = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: _held_until(locks, held, release))
        thread.start()
        await asyncio.to_thread(held.wait)
        waiting = asyncio.create_task(turn())
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="do not block an event loop"):
            locks.hold("u").__enter__()  # behind a task of this loop, whoever has it now
        release.set()
        await waiting
        await asyncio.to_thread(thread.join)
        with locks.hold("u"):
            return "free"

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == "free"
    assert locks._seats == {}


def test_a_task_that_was_just_given_a_session_cannot_be_waited_for_either():
    locks, held, release = TurnLocks(), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: _held_until(locks, held, release))

    async def scenario():
        thread.start()
        await asyncio.to_thread(held.wait)
        waiting = asyncio.create_task(_turn(locks))
        await asyncio.sleep(0.01)
        release.set()
        thread.join()  # the task has the session now, but has not run yet
        with pytest.raises(RequestError, match="do not block an event loop"):
            locks.hold("u").__enter__()
        return await waiting

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == "had it"


def test_who_gave_up_is_nobody_to_wait_for():
    locks = TurnLocks()

    async def scenario(release):
        waiting = asyncio.create_task(locks.ahold("u").__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        threading.Timer(0.02, release.set).start()
        with locks.hold("u"):  # the thread that has it does not need this one
            return "had it"

    held, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: _held_until(locks, held, release))
    thread.start()
    held.wait()
    assert asyncio.run(scenario(release)) == "had it"
    thread.join()


def test_a_task_does_not_wait_for_what_the_code_under_its_loop_has_begun():
    locks = TurnLocks()

    async def waits():
        async with locks.ahold("u"):
            pass

    with locks.hold("u"):
        with pytest.raises(RequestError, match="would never end"):
            asyncio.run(waits())
    asyncio.run(waits())


async def _turn(locks):
    async with locks.ahold("u"):
        return "had it"


def _held_until(locks, held, release):
    with locks.hold("u"):
        held.set()
        release.wait(20)


# --- streams that change hands -------------------------------------------------------------------------------------


def test_who_reads_a_stream_on_has_its_session():
    locks = TurnLocks()
    holding = locks.hold("u")
    reading = in_thread(holding.__enter__)
    with pytest.raises(RequestError):
        reading.keep()  # read on here
        locks.hold("u").__enter__()
    held, release = threading.Event(), threading.Event()
    release.set()
    waiting = threading.Thread(target=lambda: _held_until(locks, held, release))
    waiting.start()  # others wait
    while not locks._seats["default", "u"].waiting:
        time.sleep(0.001)
    in_thread(lambda: holding.__exit__(None, None, None))  # and it may end anywhere
    waiting.join(20)
    assert held.is_set()
    assert locks._seats == {}


def test_two_tasks_of_one_loop_pass_a_session_on():
    locks, order = TurnLocks(), []

    async def turn(name):
        async with locks.ahold("u") as held:
            order.append(f"{name} has it")
            await asyncio.sleep(0)
            held.keep()
            order.append(f"{name} leaves it")

    async def both():
        await asyncio.gather(*[turn(name) for name in "abc"])

    asyncio.run(both())
    assert order == [f"{name} {what}" for name in "abc" for what in ("has it", "leaves it")]
    assert locks._seats == {}


def test_a_stream_that_is_handed_to_another_thread_is_waited_for_at_once():
    """Between the last piece read here and the first one read there, the session seems to be held here."""
    locks = TurnLocks()
    holding, begun = locks.hold("u"), threading.Event()
    reading = holding.__enter__()

    def read_on():
        begun.wait(20)
        time.sleep(0.02)
        reading.keep()
        holding.__exit__(None, None, None)

    thread = threading.Thread(target=read_on)
    thread.start()
    begun.set()
    with locks.hold("u") as held:
        assert held.is_current
    thread.join(20)
    assert locks._seats == {}


def test_a_stream_that_is_handed_to_another_task_is_waited_for_at_once():
    locks = TurnLocks()

    async def scenario():
        holding = locks.ahold("u")
        reading = await holding.__aenter__()

        async def read_on():
            reading.keep()
            await holding.__aexit__(None, None, None)

        reader = asyncio.create_task(read_on())
        async with locks.ahold("u"):
            await reader

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert locks._seats == {}


def test_a_dropped_generator_is_closed_by_the_loop_before_the_next_turn():
    locks = TurnLocks()

    async def inner():
        async with locks.ahold("u"):
            yield 1
            yield 2

    async def outer():  # as pipelines wrap streams
        async for piece in inner():
            yield piece

    async def scenario():
        async for _ in outer():
            break
        async with locks.ahold("u"):
            return "had it"

    assert asyncio.run(scenario()) == "had it"
    assert locks._seats == {}


def test_what_a_closed_event_loop_has_left_holds_up_nobody():
    locks, kept = TurnLocks(), []

    def begun():
        loop, holding = asyncio.new_event_loop(), locks.ahold("u")
        kept.append(holding)
        loop.run_until_complete(asyncio.wait_for(holding.__aenter__(), 5))
        loop.close()

    begun()
    with locks.hold("u"):
        asyncio.run(_left(kept.pop()))  # it may still end, and takes nothing from whoever has the session now
        assert locks.is_held(("default", "u"))
    begun()
    assert asyncio.run(_turn(locks)) == "had it"
    assert locks._seats == {}


def test_a_task_does_not_wait_for_a_stream_of_a_loop_that_rests_in_its_thread():
    locks, resting = TurnLocks(), asyncio.new_event_loop()
    holding = locks.ahold("u")
    resting.run_until_complete(holding.__aenter__())
    with pytest.raises(RequestError, match="would never end"):
        asyncio.run(asyncio.wait_for(_turn(locks), 20))
    resting.run_until_complete(holding.__aexit__(None, None, None))
    resting.close()
    assert asyncio.run(_turn(locks)) == "had it"


async def _left(holding):
    await holding.__aexit__(None, None, None)


# --- sessions that are reset under way -----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["never", "before", "while", "elsewhere"])
def test_a_turn_is_not_recorded_when_its_session_was_reset(when):
    locks, kept = TurnLocks(), ["old"]

    def reset():
        locks.void("u", "tenant" if when == "elsewhere" else "default")
        kept.clear()

    def save():
        kept.append("turn")
        if when == "while":
            reset()
            kept.append("put back")  # as a store that writes slowly

    async def asave():
        save()

    async def aclear():
        kept.clear()

    async def turn():
        async with locks.ahold("u") as held:
            if when in ("before", "elsewhere"):
                reset()
            await held.arecord(asave, aclear)

    with locks.hold("u") as held:
        if when in ("before", "elsewhere"):
            reset()
        held.record(save, kept.clear)
    expected = {"never": ["old", "turn"], "elsewhere": ["turn"]}.get(when, [])
    assert kept == expected
    kept[:] = ["old"]
    asyncio.run(turn())
    assert kept == expected


def test_what_is_put_into_a_session_after_its_reset_stays():
    locks, kept = TurnLocks(), ["old"]
    with locks.hold("u") as held:
        locks.void("u")
        kept[:] = ["a greeting"]
        held.record(lambda: kept.append("turn"), kept.clear)
    assert kept == ["a greeting"]


def test_the_next_turn_of_a_session_that_was_reset_is_recorded():
    locks = TurnLocks()
    locks.void("u")  # nobody has it
    with locks.hold("u"):
        locks.void("u")
    with locks.hold("u") as held, locks.hold(None) as nobodys:
        assert held.is_current and nobodys.is_current
