"""What stands in the log: operations that agree with themselves, and never a text."""

import pytest

from contextpilot_core.journal.operations import Committed, Inserted, Recorded, Released, Rendered, Reset
from tests.core.conftest import body
from tests.core.memory_log import exchange, workers

PATH = ((b"a", 1), (b"b", 2))


@pytest.mark.parametrize("ends", [(), (1,), (1, None, 2)])
def test_news_of_kv_blocks_say_how_many_end_with_each_block(ends: tuple[int | None, ...]):
    with pytest.raises(ValueError, match=f"2 blocks have {len(ends)} ends"):
        Recorded("n", "r", PATH, b"", ends)


def test_news_may_know_no_end():
    assert Recorded("n", "r", PATH, b"", (None, None)).ends == (None, None)
    assert Recorded("n", "r", (), b"", ()).path == ()


def test_no_operation_and_no_snapshot_holds_a_text():
    one, two = workers()
    texts = [body(f"secret{name}") for name in range(5)]
    first = one.engine.plan(texts[:3], query="secret question", instructions="secret rule")
    history = [*first.messages, {"role": "assistant", "content": "secret answer"}]
    exchange(one, two)
    second = two.engine.plan(texts[2:], query="secret question", messages=history)
    two.engine.evict([first.request_id])
    two.engine.reset("other")
    exchange(one, two)
    said = repr(one.log.entries) + repr(one.state.snapshot())
    assert first.request_id in said and second.request_id in said
    kinds = {type(entry.operation) for entry in one.log.entries}
    assert kinds == {Inserted, Committed, Rendered, Released, Reset}
    assert "secret" not in said
