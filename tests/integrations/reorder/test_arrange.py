"""What swap-in hooks share: order, ranks, repeats and the sessions' sticky order. No framework here."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from contextpilot_core import ConfigError, ContextBlock, EngineConfig, RequestError, ReuseEngine, WindowScheduler
from contextpilot_integrations.reorder.arrange import arrange, arrange_in_turn
from contextpilot_integrations.reorder.orders import OrderMemory
from contextpilot_integrations.reorder.ranks import PLACE, RANK
from tests.core.virtual_loop import run


def text(name):
    return " ".join(f"Fact {n} about {name} is in drawer {name}{n}." for n in range(8))


def blocks(names):
    return [ContextBlock(text=text(name)) for name in names.split()]


def served(engine, names, **options):
    listed = names.split()
    return " ".join(listed[position] for position in arrange(engine, blocks(names), **options).order)


def test_the_order_follows_the_cache():
    engine = ReuseEngine()
    assert arrange(engine, blocks("D1 D2 D3 D4")).order == (0, 1, 2, 3)
    second = arrange(engine, blocks("D2 D1 D5 D3"))
    assert second.order == (1, 0, 3, 2)
    assert second.ranks == (1, 0, 3, 2)


def test_repeats_are_sent_once_and_reported():
    engine = ReuseEngine()
    found = arrange(engine, blocks("A B A A"))
    assert found.order == (0, 1)
    assert found.repeats == {0: (2, 3)}
    assert engine.stats().dropped_blocks == 2
    assert arrange(ReuseEngine(EngineConfig(dedup=False)), blocks("A B A")).order == (0, 1, 2)


def test_k_keeps_the_best_different_texts_before_anything_moves():
    engine = ReuseEngine()
    arrange(engine, blocks("D9 D8 D7"))
    assert served(engine, "A A B C D9 D8 D7", k=3) == "A B C"
    assert served(ReuseEngine(EngineConfig(dedup=False)), "A A B C", k=3) == "A A B"
    assert arrange(engine, blocks("A A B C A"), k=1).repeats == {0: (1, 4)}
    for k in (0, -1, True, 1.5):
        with pytest.raises(ConfigError, match="k=.* must be a whole number of at least 1"):
            arrange(engine, blocks("A"), k=k)


def test_nothing_in_nothing_out():
    engine = ReuseEngine()
    assert arrange(engine, []).order == ()
    assert engine.stats().planned == 0


def test_a_renderer_decides_what_is_the_same():
    engine = ReuseEngine(EngineConfig(renderer=lambda block: f"{block.title}\n{block.text}"))
    found = arrange(engine, [ContextBlock(text="x", title=title) for title in ("one", "two", "one")])
    assert found.order == (0, 1)
    assert found.repeats == {0: (2,)}


def test_documents_of_another_hook_keep_their_relevance():
    first, second = ReuseEngine(), ReuseEngine()
    arrange(first, blocks("D1 D2 D3 D4"))
    given_, found = blocks("D2 D1 D5 D3"), arrange(first, blocks("D2 D1 D5 D3"))
    noted = [
        replace(given_[position], metadata={RANK: rank, PLACE: place})
        for place, (position, rank) in enumerate(zip(found.order, found.ranks, strict=True))
    ]
    again = arrange(second, noted)
    assert [noted[position].text for position in again.order] == [block.text for block in given_]
    assert again.ranks == (0, 1, 2, 3)


def test_sticky_order():
    engine, orders = ReuseEngine(), OrderMemory()
    sticky = {"session_id": "u", "orders": orders}
    assert served(engine, "A B C D", **sticky) == "A B C D"
    assert served(engine, "D B E A", **sticky) == "A B D E"
    assert served(engine, "D A B E", **sticky) == "A B D E"  # the same documents: the whole prefix
    assert served(engine, "F E D", **sticky) == "D E F"
    assert orders.forget("u")
    assert not orders.forget("u")
    assert served(engine, "F G", **sticky) == "F G"


def test_no_session_is_no_memory_and_sessions_are_apart():
    engine, orders = ReuseEngine(), OrderMemory()
    served(engine, "A B C", orders=orders)
    assert len(orders) == 0
    assert served(engine, "C B", session_id="v", orders=orders) == "C B"  # A is not there: nothing is cached
    engine.reset()
    served(engine, "A B C", session_id="u", orders=orders)
    assert served(engine, "C B", session_id="u", namespace="other", orders=orders) == "C B"
    assert served(engine, "C B", session_id="u", orders=orders) == "B C"


def test_the_engine_may_overrule_sticky_order_where_that_saves_more():
    engine, orders = ReuseEngine(), OrderMemory()
    served(engine, "A Z", session_id="u", orders=orders)
    served(engine, "B C D E")
    assert served(engine, "B C D E A", session_id="u", orders=orders) == "B C D E A"


def test_selection_and_plain_retrieval_order_know_no_sticky_order():
    for config in (EngineConfig(strategy="none"), EngineConfig(budget=2, pinned=2)):
        engine, orders = ReuseEngine(config), OrderMemory()
        served(engine, "A B", session_id="u", orders=orders)
        assert served(engine, "B A", session_id="u", orders=orders) in ("B A", "A B")
        assert len(orders) == 0
    engine = ReuseEngine(EngineConfig(budget=2, pinned=1))
    assert len(arrange(engine, blocks("A B C D"), session_id="u", orders=OrderMemory()).order) == 2


def test_threads_lose_nothing():
    engine, orders, dice = ReuseEngine(), OrderMemory(), random.Random(7)
    calls = [" ".join(dice.sample([f"D{n}" for n in range(12)], 5)) for _ in range(400)]
    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda n: served(engine, calls[n], session_id=f"s{n % 20}", orders=orders), range(len(calls)))
        )
    assert [set(result.split()) for result in results] == [set(call.split()) for call in calls]
    engine.check_integrity()


def test_what_the_engine_refuses_changes_no_memory():
    engine, orders = ReuseEngine(), OrderMemory()
    with pytest.raises(RequestError, match="session_id='' is empty"):
        arrange(engine, blocks("A"), session_id="", orders=orders)
    assert (len(orders), engine.stats().planned) == (0, 0)


def test_in_turn_is_the_same_for_a_call_on_its_own():
    alone, scheduler = ReuseEngine(), WindowScheduler(ReuseEngine())

    async def calls():
        return [await arrange_in_turn(scheduler, blocks(names), k=3) for names in ("D1 D2 D3 D4", "D2 D1 D5 D1", "")]

    assert run(calls()) == [arrange(alone, blocks(names), k=3) for names in ("D1 D2 D3 D4", "D2 D1 D5 D1", "")]
    assert scheduler.engine.stats().planned == 2


def test_calls_at_the_same_time_are_arranged_together():
    scheduler = WindowScheduler(ReuseEngine())

    async def both():
        return await asyncio.gather(*(arrange_in_turn(scheduler, blocks(names)) for names in ("A B C X", "D C B A")))

    first, second = run(both())
    prefixes = [["ABCX"[p] for p in first.order[:3]], ["DCBA"[p] for p in second.order[:3]]]
    assert prefixes[0] == prefixes[1] and set(prefixes[0]) == set("ABC")
    assert sorted(second.order) == [0, 1, 2, 3]


def test_in_turn_the_same_is_refused_and_nothing_stays():
    scheduler = WindowScheduler(ReuseEngine())
    with pytest.raises(ConfigError, match="k=0 must be a whole number"):
        run(arrange_in_turn(scheduler, blocks("A"), k=0))
    with pytest.raises(RequestError, match="session_id='' is empty"):
        run(arrange_in_turn(scheduler, blocks("A"), session_id=""))
    scheduler.engine.check_integrity()
    assert scheduler.engine.stats().in_flight == 0
