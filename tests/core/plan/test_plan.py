"""What a plan shows of itself: messages as they go out, and values that reading does not change."""

import copy
import html
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core import ContextBlock, ContextRequest, EngineConfig, ReuseEngine, citations
from contextpilot_core.errors import RequestError, RequestTypeError
from tests.core.conftest import body

TEA, MILK, SALT = body("tea"), body("milk"), body("salt")
TALK = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]})


def messages(*blocks: str, **request: Any) -> tuple[dict[str, Any], ...]:
    return ReuseEngine().plan(blocks, **request).messages


def test_messages_in_order() -> None:
    engine = ReuseEngine()
    engine.plan([TEA, MILK])
    plan = engine.plan([MILK, SALT, TEA], query="Q", instructions="Be brief.", messages=TALK)
    assert plan.messages[:-1] == ({"role": "system", "content": "Be brief."}, *TALK)
    assert plan.messages[-1] == {"role": "user", "content": f"{plan.context.text}\n\nQ"}


def test_the_note_stands_between_context_and_question() -> None:
    engine = ReuseEngine(EngineConfig(note="compact"))
    engine.plan([TEA, MILK])
    plan = engine.plan([MILK, SALT, TEA], query="Q")
    assert plan.moved
    assert plan.text == f"{plan.context.text}\n\n{plan.annotation}"
    assert plan.messages[-1]["content"] == f"{plan.text}\n\nQ"


@pytest.mark.parametrize(("blocks", "query"), [((), "Q"), ((), "")])
def test_without_documents_the_question_stands_alone(blocks: tuple[str, ...], query: str) -> None:
    assert messages(*blocks, query=query) == (({"role": "user", "content": query},) if query else ())


def test_callers_messages_are_copied_never_changed() -> None:
    history = [{"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "ann", "x": {"y": 1}}]
    before = copy.deepcopy(history)
    result = messages(TEA, instructions="S", messages=history)
    assert result[1] == before[0]
    result[1]["role"] = result[1]["content"][0]["text"] = "changed"
    assert history == before


@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_one_system_message_where_both_agree(content: Any, role: str) -> None:
    history = [{"role": role, "content": content}]
    assert messages(instructions="Be brief.", messages=history, query="Q") == (
        history[0],
        {"role": "user", "content": "Q"},
    )


def test_a_system_message_of_the_history_is_kept() -> None:
    history = ({"role": "system", "content": "Old."}, {"role": "user", "content": "hi"})
    assert messages(messages=history) == history


def test_differing_instructions_are_refused() -> None:
    history = [{"role": "user", "content": "hi"}, {"role": "system", "content": "secret one"}]
    with pytest.raises(RequestError, match="leave instructions empty") as caught:
        messages(instructions="secret two", messages=history, query="Q")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("history", [["text"], [{"content": "x"}], [{"role": 1}]])
def test_a_message_that_is_none_is_refused(history: Any) -> None:
    with pytest.raises(RequestTypeError, match=r"messages\[0\] must be a mapping"):
        messages(messages=history)


@given(st.lists(st.text(max_size=40), max_size=3), st.text(max_size=20))
def test_p13_retrieved_text_never_reaches_the_system_message(texts: list[str], query: str) -> None:
    result = messages(*texts, instructions="S", query=query)
    assert result[0] == {"role": "system", "content": "S"}
    assert [message["role"] for message in result[1:]] == (["user"] if texts or query else [])


def test_reading_a_plan_changes_no_state() -> None:
    engine = ReuseEngine()
    first = engine.plan([TEA, MILK], query="one")
    plan = engine.plan(
        [MILK, SALT], query="two", messages=[*first.messages, {"role": "assistant", "content": "a"}], commit=False
    )
    before = engine.stats()
    shown = (plan.messages, plan.text, plan.context, plan.report, plan.explain(), plan._repr_html_(), plan.section)
    assert len(plan.labels) == len(plan.segments) == len(plan.expand()) == 2
    assert plan.names_history
    assert engine.stats() == before
    engine.abandon(plan)
    gone = engine.stats()
    assert (plan.messages, plan.text) == shown[:2]
    assert engine.stats() == gone


def test_the_message_is_known_whether_it_is_read_or_not() -> None:
    read, unread = ReuseEngine(), ReuseEngine()
    text = read.plan([TEA, MILK], query="one").messages[-1]
    unread.plan([TEA, MILK], query="one")
    history = [text, {"role": "assistant", "content": "a"}]
    plans = [engine.plan([MILK, SALT], query="two", messages=history) for engine in (read, unread)]
    assert plans[0].hints == plans[1].hints != ()


def test_what_shall_not_be_remembered_is_sent_again() -> None:
    engine = ReuseEngine()
    first = engine.plan([TEA, MILK], query="one", remember=False)
    assert engine.stats().known_messages == 0
    history = [*first.messages, {"role": "assistant", "content": "a"}]
    second = engine.plan([MILK, SALT], query="two", messages=history)
    assert second.hints == ()
    assert MILK in second.messages[-1]["content"]
    with pytest.raises(RequestTypeError, match="remember"):
        engine.plan([TEA], remember="no")  # type: ignore[arg-type]


def test_a_batch_is_remembered_as_single_plans_are() -> None:
    engine = ReuseEngine()
    batch = engine.plan_batch([ContextRequest(blocks=[TEA, MILK], query="one"), ContextRequest(blocks=[SALT])])
    history = [*batch.plans[0].messages, {"role": "assistant", "content": "a"}]
    assert [hint.label for hint in engine.plan([MILK], messages=history).hints] == [
        batch.plans[0].labels[batch.plans[0].order.index(1)]
    ]


def test_own_labels_are_those_of_what_is_sent() -> None:
    engine = ReuseEngine()
    first = engine.plan([TEA, MILK], query="one")
    second = engine.plan([SALT, TEA], query="two", messages=[*first.messages, {"role": "assistant", "content": "a"}])
    assert (first.own_labels, second.own_labels, second.labels) == ((1, 2), (3,), (3, 1))
    assert (first.names_history, second.names_history) == (False, True)


def test_unselected_are_those_that_selection_left_out() -> None:
    engine = ReuseEngine(EngineConfig(budget=2, pinned=1))
    plan = engine.plan([TEA, MILK, SALT, MILK])
    assert (plan.order, plan.unselected, plan.dropped) == ((0, 1), (2,), (3,))


def test_blocks_are_the_callers_in_the_order_of_the_prompt() -> None:
    block = ContextBlock(text=SALT, id=7, title="Salt")
    plan = ReuseEngine().plan([block, TEA])
    assert plan.blocks == (block, ContextBlock(text=TEA))


def test_a_plan_is_neither_copied_nor_pickled() -> None:
    plan = ReuseEngine().plan([TEA])
    assert copy.copy(plan) is plan
    assert copy.deepcopy([plan])[0] is plan
    with pytest.raises(TypeError, match=r"plan\.messages"):
        pickle.dumps(plan)
    assert TEA not in repr(plan)


def test_sources_over_the_turns_that_are_visible() -> None:
    engine = ReuseEngine()
    tea, milk, salt = (ContextBlock(text=f"{name} " * 40, id=name) for name in ("tea", "milk", "salt"))
    first = engine.plan([tea, milk], query="one?")
    history = [*first.messages, {"role": "assistant", "content": "[Doc 1]"}]
    elsewhere = ContextBlock(text=milk.text, id="elsewhere")
    second = engine.plan([salt, elsewhere], query="two?", messages=history)
    assert second.hints[0].label == 2
    assert {label: source.blocks for label, source in second.sources.items()} == {
        1: (tea,),
        2: (milk, elsewhere),
        3: (salt,),
    }
    third = engine.plan([], query="three?", messages=[*second.messages, {"role": "assistant", "content": "Yes."}])
    assert dict(third.sources) == dict(second.sources)
    found = citations("As [Doc 3] and [Doc 9] say.", third.sources)
    assert ([source.block for source in found.sources.values()], found.unknown) == ([salt], (9,))
    rest = engine.plan([], query="four?", messages=third.messages[2:])  # without the first turn
    assert {label: source.blocks for label, source in rest.sources.items()} == {2: (elsewhere,), 3: (salt,)}


def test_sources_of_messages_that_nobody_remembers_are_none() -> None:
    engine = ReuseEngine()
    first = engine.plan(["tea " * 40], query="one?", remember=False)
    assert [source.block.text for source in first.sources.values()] == ["tea " * 40]
    assert dict(engine.plan([], query="two?", messages=first.messages).sources) == {}


DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("name", "said"), [(DEEP, "<list>"), pytest.param(10**5_000, "<int>", id="huge"), (None, "tea-0"), (7, "7")]
)
def test_a_plan_is_explained_whatever_its_blocks_are_called(name: Any, said: str) -> None:
    plan = ReuseEngine().plan([ContextBlock(text=TEA, id=name)])
    assert said in plan.explain()
    assert html.escape(said) in plan._repr_html_()
