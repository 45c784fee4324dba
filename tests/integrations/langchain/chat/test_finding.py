"""What a chat looks for: the user's question, or one made to stand alone; and what it makes of the documents."""

import asyncio

import pytest

from contextpilot_core import ConfigError, EngineConfig, RequestTypeError, ReuseEngine
from contextpilot_integrations.reorder.ranks import PLACE, RANK
from tests.conftest import require

require("langchain_core")

from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.output_parsers import StrOutputParser  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate  # noqa: E402
from langchain_core.runnables import RunnableLambda  # noqa: E402

from contextpilot_integrations.langchain.chat.finding import Finder, as_asked  # noqa: E402
from contextpilot_integrations.langchain.chat.history import MemoryHistory  # noqa: E402
from tests.integrations.langchain_chats import HOWS, U, asking, chat_of, fixed  # noqa: E402
from tests.integrations.langchain_fakes import Lists, Recorder, document, names_in, text_of  # noqa: E402

ASYNC = [how for how in HOWS if how.startswith("a")]


class Looked(Lists):
    """Remembers what it was asked."""

    asked: list[str] = []

    def _get_relevant_documents(self, query, *, run_manager, **kwargs):
        self.asked.append(query)
        return super()._get_relevant_documents(query, run_manager=run_manager, **kwargs)


class Condenser:
    """Makes every question one about D9, and remembers what it saw."""

    def __init__(self, made="D9 what?"):
        self.made, self.seen = made, []

    def __call__(self, question, history):
        self.seen.append((question, [(message.type, message.content) for message in history]))
        return self.made

    async def wait(self, question, history):
        await asyncio.sleep(0)
        return self(question, history)

    def take(self, given):
        return self(given["input"], given["chat_history"])


def kinds(condenser):
    return {
        "callable": condenser,
        "Runnable": RunnableLambda(condenser.take),
        "message": RunnableLambda(lambda given: AIMessage(condenser.take(given))),
    }


def check(ask, retriever, model, condenser):
    ask("D1,D2 what?", U)
    assert condenser.seen == [], "there is nothing to condense a first question with"
    ask("and its price?", U)
    assert retriever.asked == ["D1,D2 what?", "D9 what?"]
    assert condenser.seen == [("and its price?", [("human", "D1,D2 what?"), ("ai", model.prompts[1][1].content)])], (
        "without documents"
    )
    last = model.prompts[1][-1].content
    assert names_in(last) == {"D9"}
    assert last.endswith("\n\nand its price?"), "the model is asked what the user asked"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["callable", "Runnable", "message"])
def test_a_question_is_made_to_stand_alone(how, kind):
    retriever, condenser = Looked(asked=[]), Condenser()
    chat, model = chat_of(retriever=retriever, condense_question=kinds(condenser)[kind])
    check(asking(chat, how), retriever, model, condenser)


@pytest.mark.parametrize("how", ASYNC)
def test_it_may_wait(how):
    retriever, condenser = Looked(asked=[]), Condenser()
    chat, model = chat_of(retriever=retriever, condense_question=condenser.wait)
    check(asking(chat, how), retriever, model, condenser)


def test_the_prompt_of_langchains_history_aware_retriever_does_it():
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Make it stand alone."), ("placeholder", "{chat_history}"), ("human", "{input}")]
    )
    writer, retriever = Recorder(answer=lambda messages: AIMessage("D9 what?")), Looked(asked=[])
    chat, model = chat_of(retriever=retriever, condense_question=prompt | writer | StrOutputParser())
    chat.invoke("D1 what?", U)
    chat.invoke("and then?", U)
    assert retriever.asked == ["D1 what?", "D9 what?"]
    assert [message.content for message in writer.prompts[0]] == ["Make it stand alone.", "D1 what?", "ok", "and then?"]
    assert len(model.prompts) == 2


@pytest.mark.parametrize("made", ["", " \n"])
def test_an_empty_one_changes_nothing(made):
    retriever = Looked(asked=[])
    chat, _ = chat_of(retriever=retriever, condense_question=Condenser(made))
    chat.invoke("D1 what?", U)
    chat.invoke("D2 what?", U)
    assert retriever.asked == ["D1 what?", "D2 what?"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("made", [None, ["D9"], 9])
def test_what_is_no_text_is_refused_and_nothing_is_kept(how, made):
    chat, model = chat_of(condense_question=Condenser(made))
    ask = asking(chat, how)
    ask("D1 what?", U)
    with pytest.raises(RequestTypeError, match=rf"condense_question returned a {type(made).__name__}, not a str"):
        ask("and?", U)
    assert (len(model.prompts), len(chat.history("u"))) == (1, 2)


def test_one_that_waits_is_refused_where_nobody_can_wait():
    chat, _ = chat_of(condense_question=Condenser().wait)
    chat.invoke("D1 what?", U)
    with pytest.raises(RequestTypeError, match="where it is asynchronous, ask with ainvoke or astream"):
        chat.invoke("and?", U)


def test_what_cannot_condense_is_refused_at_once():
    with pytest.raises(ConfigError, match="condense_question is a int; give a Runnable"):
        chat_of(condense_question=3)


def test_the_config_of_a_call_reaches_what_condenses():
    seen = []
    chat, _ = chat_of(condense_question=RunnableLambda(lambda given, config: seen.append(config["tags"]) or "D9 what?"))
    chat.invoke("D1 what?", U)
    chat.invoke("and?", {**U, "tags": ["mine"]})
    assert "mine" in seen[0]


def test_the_history_shows_questions_and_other_messages_stay():
    others = [HumanMessage("hello", id="1"), AIMessage("hi")]
    assert [as_asked(message) is message for message in others] == [True, True]
    history = MemoryHistory()
    chat, _ = chat_of(history=lambda session_id: history)
    chat.invoke("D1 what?", U)
    assert [as_asked(message).content for message in history.messages] == ["D1 what?", "ok"]


# --- what the model is shown of a document -------------------------------------------------------------------------

PROMPT = PromptTemplate.from_template("Source: {source}\nContent: {page_content}")


@pytest.mark.parametrize("how", HOWS)
def test_a_document_prompt_says_what_is_shown_and_what_is_the_same(how):
    copy = document("D1", source="copy.md")
    retriever = RunnableLambda(lambda query: [document("D1"), copy, document("D1")])
    engine = ReuseEngine(EngineConfig(span_dedup=False))
    chat, model = chat_of(retriever=retriever, engine=engine, document_prompt=PROMPT)
    ask = asking(chat, how)
    ask("what?", U)
    ask("and?", U)
    first, second = (prompt[-1].content for prompt in model.prompts)
    assert f"[Doc 1]\n===\nSource: D1.md\nContent: {text_of('D1')}\n===" in first
    assert "[Doc 2]\n===\nSource: copy.md\nContent: " in first, "another source is another document"
    assert first.count("Source: D1.md") == 1
    assert second == "See [Doc 1] above.\nSee [Doc 2] above.\n\nand?"


def test_a_document_without_a_variable_of_the_prompt_is_refused_as_by_langchain():
    chat, model = chat_of(document_prompt=PromptTemplate.from_template("{page}: {page_content}"))
    with pytest.raises(ValueError, match="page"):
        chat.invoke("D1 what?", U)
    assert model.prompts == [] and chat.history("u") == []


def test_documents_that_a_hook_of_ours_moved_come_best_first():
    moved = [document("D1", **{RANK: 1, PLACE: 0}), document("D2", **{RANK: 0, PLACE: 1})]
    found = Finder(fixed()).find("q", [], {})
    assert found == []
    found = Finder(RunnableLambda(lambda query: moved)).find("q", [], {})
    assert [block.document for block in found] == moved[::-1]
    assert [block.text for block in found] == [text_of("D2"), text_of("D1")]
