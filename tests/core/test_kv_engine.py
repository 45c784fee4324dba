"""The model of a serving engine that other tests lean on: what it holds, and what it publishes of that."""

from contextpilot_core.mirror.events import BlockRemoved, BlockStored
from tests.core.kv_engine import SIZE, Engine, name_of


def test_the_model_of_the_engine_counts_copies():
    engine = Engine()
    engine.admit([0] * SIZE)
    engine.admit([0] * SIZE, lookup=False)
    engine.evict(0)
    assert engine.held((0,) * SIZE)
    assert [type(event) for event in engine.take()] == [BlockStored, BlockStored, BlockRemoved]
    assert name_of((0,), "a") != name_of((0,))
