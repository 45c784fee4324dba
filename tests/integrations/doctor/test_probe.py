"""What the doctor asks of a pipeline of either framework."""

import subprocess
import sys

import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_integrations.doctor import probe, record
from tests.conftest import require
from tests.integrations.probed_pipelines import (
    NAMES,
    QUERIES,
    SHARED_FIRST,
    SYSTEM,
    TEXTS,
    prompt_of,
    query_engine,
    retrieval_chain,
)


def test_a_retriever_alone_sends_no_prompt(lc):
    with pytest.raises(RequestError, match="2 questions made 0 calls to a model"):
        probe(lc.retriever(), QUERIES)


def test_llama_index_takes_no_langchain_arguments(li):
    with pytest.raises(RequestTypeError, match="for LangChain"):
        probe(query_engine(li), QUERIES, config={"tags": []})


def test_prompts_of_the_last_ones_kind_are_compared(lc):
    from langchain_core.language_models.fake import FakeListLLM

    chain = FakeListLLM(responses=["So."]) | prompt_of(("human", SYSTEM.format(context="trees") + "{input}")) | lc.model
    recording = record(chain, QUERIES)
    assert [isinstance(each.prompt, str) for each in recording.prompts] == [True, False, True, False]
    (pair,) = probe(chain, QUERIES).pairs
    assert (pair.prompt, pair.against) == (1, 0)
    assert pair.prompt_tokens > 10  # of the messages, not of the question alone


def test_every_question_is_asked_once_in_order_and_recorded_with_its_prompts(lc):
    recording = record(retrieval_chain(lc, lc.retriever()), [*QUERIES, QUERIES[0]])
    assert [each.question for each in recording.prompts] == [*QUERIES, QUERIES[0]]
    assert all(each.question in each.prompt[-1]["content"] for each in recording.prompts)
    assert recording.documents == tuple(TEXTS[name] for name in NAMES)


def test_nothing_is_recorded_of_no_question(lc):
    recording = record(retrieval_chain(lc, lc.retriever()), [])
    assert (recording.prompts, recording.documents) == ((), ())


def test_other_objects_are_refused():
    with pytest.raises(RequestTypeError, match="pipeline is a object; give a LangChain runnable"):
        probe(object(), QUERIES)


@pytest.mark.parametrize("ask", [probe, record])
def test_one_text_is_no_list_of_questions(ask):
    with pytest.raises(RequestTypeError, match="queries is one text, .* give a list of questions"):
        ask(object(), "Why?")


@pytest.mark.parametrize("queries", ["W", ["one"], []])
def test_one_question_is_not_enough(queries):
    with pytest.raises(RequestError, match="at least two questions"):
        probe(object(), queries)


def test_kv_blocks_and_counter_are_those_given(lc):
    def words(text):
        return len(text.split())

    pair = probe(retrieval_chain(lc, lc.retriever(SHARED_FIRST)), QUERIES, kv_block=64, count=words).pairs[0]
    assert pair.reused_tokens % 64 == 0
    assert pair.prompt_tokens < 400


@pytest.mark.parametrize(
    ("setup", "absent"),
    [
        (
            "from langchain_core.language_models.fake_chat_models import FakeListChatModel as Model\n"
            "pipeline = Model(responses=['x'])",
            "llama_index",
        ),
        (
            "from llama_index.core.chat_engine import SimpleChatEngine\nfrom llama_index.core.llms import MockLLM\n"
            "pipeline = SimpleChatEngine.from_defaults(llm=MockLLM())",
            "langchain_core",
        ),
    ],
)
def test_probing_one_framework_does_not_import_the_other(setup, absent):
    require("langchain_core")
    require("llama_index.core")
    code = (
        f"import sys\n{setup}\nfrom contextpilot_integrations.doctor import probe\n"
        f"probe(pipeline, ['one', 'two'])\nprint({absent!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
