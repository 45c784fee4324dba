"""One turn as LangChain's messages: what goes to the model, and what is kept of it."""

import asyncio

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_integrations.serving.chat import Setting
from tests.conftest import require

require("langchain_core")

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage  # noqa: E402

from contextpilot_integrations.langchain.chat.history import CONTEXT  # noqa: E402
from contextpilot_integrations.langchain.chat.llm import ModelCall  # noqa: E402
from contextpilot_integrations.langchain.chat.turn import ChatTurn  # noqa: E402
from contextpilot_integrations.langchain.documents import as_block  # noqa: E402
from tests.integrations.langchain_fakes import document, names_in, text_of  # noqa: E402

CALL = ModelCall({"temperature": 0}, {"max_tokens": 40, "extra_body": {"cache_salt": "s"}})
USED = {"input_tokens": 100, "output_tokens": 1, "total_tokens": 101, "input_token_details": {"cache_read": 25}}


def turn_of(question, *names, messages=(), engine=None, call=CALL, tokenizer=None, **setting):
    made = Setting(engine=engine or ReuseEngine(), count=lambda text: len(text.split()), **setting)
    return ChatTurn(made, tokenizer, list(messages), question, [as_block(document(name)) for name in names], call)


def talk(*asked, **options):
    """The messages of a conversation."""
    messages = []
    for names in asked:
        turn = turn_of(f"{names} what?", *names.split(","), messages=messages, **options)
        messages += turn.added(AIMessage("ok"))
    return messages


def test_a_prompt_is_instructions_history_and_question_without_records():
    messages = talk("D1,D2")
    turn = turn_of("and?", "D2", "D3", messages=messages, instructions="Be brief.")
    system, first, answer, question = turn.prompt
    assert system == SystemMessage("Be brief.")
    assert (first.content, answer) == (messages[0].content, messages[1])
    assert question.content == f"See [Doc 2] above.\n[Doc 3]\n===\n{text_of('D3')}\n===\n\nand?"
    assert all(CONTEXT not in message.additional_kwargs for message in turn.prompt)
    assert turn.arguments == {"temperature": 0}


def test_a_system_message_of_the_history_stands_in_place_of_ours():
    messages = [SystemMessage("Be brief."), *talk("D1")]
    prompt = turn_of("and?", "D2", messages=messages, instructions="Be brief.").prompt
    assert [message.type for message in prompt] == ["system", "human", "ai", "human"]
    assert prompt[0] is messages[0]


@pytest.mark.parametrize("question", ["", " ", "\n\t "])
def test_an_empty_question_is_refused_before_anything_is_planned(question):
    engine = ReuseEngine()
    with pytest.raises(RequestError, match=rf"the question is empty \({len(question)} characters\)"):
        turn_of(question, "D1", engine=engine)
    assert engine.stats().planned == 0


# --- what is kept --------------------------------------------------------------------------------------------------


def test_a_turn_is_appended():
    turn = turn_of("what?", "D1")
    answer = AIMessage("ok")
    question, kept = turn.added(answer)
    assert kept is answer
    assert question.content.endswith("\n\nwhat?")
    assert question.additional_kwargs[CONTEXT]["query"] == "what?"
    assert not turn.turn.rewritten


def test_what_was_cut_is_replaced_by_what_was_sent():
    messages = talk("D1,D2", "D2", "D3")
    turn = turn_of("and?", "D2", messages=messages[2:])
    assert turn.turn.rewritten
    added = turn.added(AIMessage("ok"))
    assert [message.content for message in added[:-1]] == [message.content for message in turn.prompt]
    assert [names_in(message.content) for message in added[::2]] == [{"D2"}, {"D3"}, set()]
    assert added[1] is messages[3]


def test_the_room_is_what_the_answer_leaves():
    messages = talk("D1", "D2", "D3")
    size = sum(4 + len(message.content.split()) for message in turn_of("D4?", "D4", messages=messages).prompt)
    assert not turn_of("D4?", "D4", messages=messages, window=size + 40).turn.rewritten
    assert turn_of("D4?", "D4", messages=messages, window=size + 39).turn.rewritten


def test_the_window_goes_by_what_the_model_reported():
    question = turn_of("what?", "D1")
    tokens = 5 * question.turn.entry.asked.tokens
    messages = question.added(AIMessage("ok", usage_metadata={**USED, "input_tokens": tokens}))
    assert turn_of("and?", "D2", messages=messages, window=600).turn.rewritten
    assert not turn_of("and?", "D2", messages=talk("D1"), window=600).turn.rewritten


@pytest.mark.parametrize("answer", ["text", None, {"content": "ok"}])
def test_an_answer_that_is_no_message_is_refused(answer):
    with pytest.raises(RequestTypeError, match=f"llm answered with a {type(answer).__name__}; give a chat model"):
        turn_of("what?", "D1").added(answer)


def test_an_answer_with_tool_calls_is_not_kept():
    call = {"name": "t", "args": {}, "id": "1", "type": "tool_call"}
    assert turn_of("what?", "D1").added(AIMessage("", tool_calls=[call])) == []


def test_an_answer_whose_tool_call_is_broken_off_is_not_kept():
    """LangChain sends it as a call, and after a call no question may follow."""
    broken = {"name": "t", "args": '{"p', "id": "1", "error": "JSON", "type": "invalid_tool_call"}
    assert turn_of("what?", "D1").added(AIMessage("Let me look.", invalid_tool_calls=[broken])) == []
    raw = {"id": "1", "type": "function", "function": {"name": "t", "arguments": '{"p'}}
    for kept in ({"tool_calls": [raw]}, {"function_call": raw["function"]}):
        assert turn_of("what?", "D1").added(AIMessage("Let me look.", additional_kwargs=kept)) == []


@pytest.mark.parametrize(
    "content", ["", " \n", [], [{"type": "thinking", "thinking": "Hm."}], [{"type": "text", "text": ""}]]
)
def test_an_answer_that_says_nothing_is_not_kept(content):
    assert turn_of("what?", "D1").added(AIMessage(content, response_metadata={"finish_reason": "length"})) == []


def test_a_refusal_is_kept_as_what_was_said():
    answer = AIMessage("", additional_kwargs={"refusal": "I can't."}, id="a")
    _, kept = turn_of("what?", "D1").added(answer)
    assert (kept.content, kept.id, answer.content) == ("I can't.", "a", "")
    both = AIMessage("Well.", additional_kwargs={"refusal": "I can't."})
    assert turn_of("what?", "D1").added(both)[1] is both


def test_documents_with_a_renderer_are_kept_with_what_it_reads():
    engine = ReuseEngine(EngineConfig(renderer=lambda block: f"{block.metadata['source']}: {block.text}"))
    question, _ = turn_of("what?", "D1", engine=engine).added(AIMessage("ok"))
    assert question.content.startswith("[Doc 1]\n===\nD1.md: Fact 0")
    assert question.additional_kwargs[CONTEXT]["blocks"][0]["metadata"] == {"source": "D1.md"}


# --- figures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("asks", [False, True], ids=["without tokens", "with tokens"])
def test_figures_are_those_that_the_model_reported(asynchronous, asks):
    asked = []

    class Tokenizer:
        def read(self, plan, messages, **options):
            asked.append((plan, [message["role"] for message in messages], options["prompt_tokens"]))

    engine = ReuseEngine()
    turn = turn_of("what?", "D1", engine=engine, instructions="Be brief.", tokenizer=Tokenizer() if asks else None)
    turn.turn.sent()
    answer = AIMessage("ok", usage_metadata=USED)
    figures = asyncio.run(turn.afigures(answer)) if asynchronous else turn.figures(answer)
    assert (figures.prompt_tokens, figures.reported, figures.hit_rate) == (100, 25, 0.25)
    assert asked == ([(turn.turn.plan, ["system", "user"], 100)] if asks else [])
    assert engine.stats().compared == 1


def test_messages_of_a_caller_are_not_changed():
    messages = talk("D1", "D1")
    before = [message.model_copy(deep=True) for message in messages]
    turn = turn_of("and?", "D1", messages=messages[2:])
    turn.added(HumanMessage("ok"))
    assert turn.prompt
    assert messages == before
