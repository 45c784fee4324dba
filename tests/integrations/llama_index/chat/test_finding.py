"""What is looked for, and by whom it was made to stand alone."""

import asyncio

import pytest

from contextpilot_core import ConfigError, RequestTypeError
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import ChatMessage  # noqa: E402
from llama_index.core.chat_engine.condense_plus_context import DEFAULT_CONDENSE_PROMPT_TEMPLATE  # noqa: E402
from llama_index.core.postprocessor import SimilarityPostprocessor  # noqa: E402
from llama_index.core.postprocessor.types import BaseNodePostprocessor  # noqa: E402
from llama_index.core.prompts import PromptTemplate  # noqa: E402
from llama_index.core.prompts.rich import RichPromptTemplate  # noqa: E402

from contextpilot_integrations.llama_index.chat.finding import Finder, Found  # noqa: E402
from tests.integrations.llama_index_chats import WAYS  # noqa: E402
from tests.integrations.llama_index_fakes import D1, D2, TABLE, Recorder, TableRetriever, texts  # noqa: E402

HISTORY = [ChatMessage(role="user", content="hello"), ChatMessage(role="assistant", content="hi")]
ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def find(finder, asynchronous, question, history):
    return asyncio.run(finder.afind(question, history)) if asynchronous else finder.find(question, history)


@ASYNC
def test_the_question_is_looked_for_as_it_is(asynchronous):
    found = find(Finder(TableRetriever(), [], None, Recorder()), asynchronous, "qA one", HISTORY)
    assert (found.query, texts(found.nodes)) == ("qA one", TABLE["qA"])


@ASYNC
@pytest.mark.parametrize(
    "prompt",
    [
        DEFAULT_CONDENSE_PROMPT_TEMPLATE,
        PromptTemplate(DEFAULT_CONDENSE_PROMPT_TEMPLATE),
        RichPromptTemplate("{{ chat_history }} {{ question }}"),
        PromptTemplate("{talk} {question}", template_var_mappings={"chat_history": "talk"}),
    ],
)
def test_a_prompt_is_asked_with_the_history(asynchronous, prompt):
    llm = Recorder(lambda messages: " qB two\n")
    found = find(Finder(TableRetriever(), [], prompt, llm), asynchronous, "and two?", HISTORY)
    assert (found.query, texts(found.nodes)) == ("qB two", TABLE["qB"])
    assert "user: hello\nassistant: hi" in llm.prompts[0] and "and two?" in llm.prompts[0]


def condensed(question, history):
    return f"qB {len(history)} {question}"


async def acondensed(question, history):
    return condensed(question, history)


@pytest.mark.parametrize(("condense", "asynchronous"), [(condensed, False), (condensed, True), (acondensed, True)])
def test_a_callable_is_asked_with_the_history(condense, asynchronous):
    found = find(Finder(TableRetriever(), [], condense, Recorder()), asynchronous, "x", HISTORY)
    assert (found.query, texts(found.nodes)) == ("qB 2 x", TABLE["qB"])


@ASYNC
def test_the_first_question_and_one_that_was_not_made_another_stay(asynchronous):
    llm = Recorder(lambda messages: "  ")
    prompt = Finder(TableRetriever(), [], DEFAULT_CONDENSE_PROMPT_TEMPLATE, llm)
    assert find(prompt, asynchronous, "qA", []).query == "qA"
    assert llm.messages == []
    assert find(prompt, asynchronous, "qA", HISTORY).query == "qA"
    assert find(Finder(TableRetriever(), [], lambda *given: "", llm), asynchronous, "qA", HISTORY).query == "qA"


@ASYNC
def test_postprocessors_see_what_was_looked_for(asynchronous):
    seen = []

    class Asked(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes, query_bundle=None):
            seen.append(query_bundle.query_str)
            return nodes[:2]

    finder = Finder(
        TableRetriever(), [SimilarityPostprocessor(similarity_cutoff=0.85), Asked()], lambda *given: "qA", Recorder()
    )
    found = find(finder, asynchronous, "x", HISTORY)
    assert isinstance(found, Found)
    assert (texts(found.nodes), seen) == ([D1], ["qA"])


@pytest.mark.parametrize(
    ("condense", "said"),
    [
        ("{question}", "no variable 'chat_history'"),
        (PromptTemplate("{chat_history}"), "no variable 'question'"),
        (7, "is a int; give a prompt"),
    ],
)
def test_what_cannot_condense_is_refused(condense, said):
    with pytest.raises(ConfigError, match=said):
        Finder(TableRetriever(), [], condense, Recorder())


@pytest.mark.parametrize(
    ("condense", "asynchronous"), [(acondensed, False), (lambda *_: 7, False), (lambda *_: 7, True)]
)
def test_what_gives_no_text_is_refused(condense, asynchronous):
    with pytest.raises(RequestTypeError, match="not a str"):
        find(Finder(TableRetriever(), [], condense, Recorder()), asynchronous, "x", HISTORY)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["prompt", "callable"])
def test_a_chat_looks_for_one_question_and_asks_the_other(talk, way, kind):
    """What condenses sees questions and answers, no documents; the prompts still extend each other."""
    seen = []

    def condense(question, history):
        seen.append([message.content for message in history])
        return "qB two"

    def reply(messages):
        return "qB two" if "standalone" in (messages[0].content or "") else "an answer"

    chat = talk(way, llm=Recorder(reply), condense_question=condense if kind == "callable" else _PROMPT)
    chat("qA one")
    response, _ = chat("and the other?")
    assert chat.retriever.asked == ["qA one", "qB two"]
    assert response.sources[0].raw_input == {"message": "qB two"}
    assert chat.prompts[-1].startswith(chat.prompts[0])
    assert chat.llm.messages[-1][-1].content.endswith("\n\nand the other?")
    if kind == "callable":
        assert seen == [["qA one", "an answer"]]
    else:
        assert D2 not in chat.prompts[1] and "user: qA one\nassistant: an answer" in chat.prompts[1]


_PROMPT = "Make it standalone.\n{chat_history}\nuser: {question}"
