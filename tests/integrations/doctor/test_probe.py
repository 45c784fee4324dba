"""The doctor on real pipelines of both frameworks: the prompt shapes of the docs, and what is wrong with each."""

import subprocess
import sys
import threading

import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_integrations.doctor import probe, record
from tests.conftest import require

NAMES = ("ash", "birch", "cedar", "elder", "fir")
TEXTS = {
    n: f"The {n} is a tree. " + f"Its {n} wood burns in many an oven. " * 6 + f"So much for the {n}." for n in NAMES
}
FOUND = {"A": NAMES[:4], "B": ("birch", "ash", "fir", "cedar")}
SHARED_FIRST = {**FOUND, "B": ("ash", "birch", "cedar", "fir")}
QUERIES = ["A tells of which trees?", "B knows what else about trees?"]


# --- LangChain


@pytest.fixture
def lc():
    """Parts of a LangChain pipeline; ``lc.retriever(table, metadata)`` finds by the first letter of the question."""
    require("langchain_core")
    require("langchain_classic")
    from types import SimpleNamespace

    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.retrievers import BaseRetriever

    class Table(BaseRetriever):
        table: dict
        metadata_of: object = None

        def _get_relevant_documents(self, query, *, run_manager):
            names = self.table[query[0]]
            extra = self.metadata_of or (lambda question, rank: {})
            return [
                Document(id=n, page_content=TEXTS[n], metadata={"source": f"{n}.md", **extra(query, rank)})
                for rank, n in enumerate(names)
            ]

    def scores(question, rank):
        return {"score": 0.91 - 0.1 * rank - (0.0371 if question[0] == "B" else 0)}

    return SimpleNamespace(
        model=FakeListChatModel(responses=["So it is."]),
        retriever=lambda table=FOUND, metadata_of=None: Table(table=table, metadata_of=metadata_of),
        scores=scores,
        join=lambda documents: "\n\n".join(d.page_content for d in documents),
    )


def prompt_of(*messages):
    from langchain_core.prompts import ChatPromptTemplate

    return ChatPromptTemplate.from_messages(messages)


SYSTEM = "Answer from this context, briefly, and say so when you do not know.\n\n{context}"


def retrieval_chain(lc, retriever, *messages, **options):
    from langchain_classic.chains import create_retrieval_chain
    from langchain_classic.chains.combine_documents import create_stuff_documents_chain

    template = prompt_of(*(messages or (("system", SYSTEM), ("human", "{input}"))))
    return create_retrieval_chain(retriever, create_stuff_documents_chain(lc.model, template, **options))


def test_langchain_retrieval_chain(lc):
    before = probe(retrieval_chain(lc, lc.retriever()), QUERIES)
    assert before.kinds == ("document_order", "document_set")
    assert before.pairs[0].precedes_documents
    after = probe(retrieval_chain(lc, lc.retriever(SHARED_FIRST)), QUERIES)
    assert after.fine
    assert after.pairs[0].documents_before == 3
    assert after.reused_tokens > before.reused_tokens + 100


def test_langchain_after_our_retriever(lc):
    from contextpilot_integrations.langchain import ContextPilotRetriever

    diagnosis = probe(retrieval_chain(lc, ContextPilotRetriever(base_retriever=lc.retriever())), QUERIES)
    assert diagnosis.fine
    assert diagnosis.pairs[0].documents_before == 3


@pytest.mark.parametrize("table", [FOUND, SHARED_FIRST])
def test_langchain_question_first_template(lc, table):
    from langchain_core.runnables import RunnablePassthrough

    template = prompt_of(("human", "Use the context to answer.\nQuestion: {question} \nContext: {context} \nAnswer:"))
    chain = {"context": lc.retriever(table) | lc.join, "question": RunnablePassthrough()} | template | lc.model
    diagnosis = probe(chain, QUERIES)
    assert diagnosis.findings[0].kind == "question_before_context"
    assert diagnosis.pairs[0].precedes_documents
    assert diagnosis.reused_tokens == 0


def test_langchain_documents_printed_as_objects(lc):
    from langchain_core.runnables import RunnablePassthrough

    template = prompt_of(("human", "Use the context to answer.\nContext: {context}\nQuestion: {question}"))
    retriever = lc.retriever(SHARED_FIRST, lc.scores)
    diagnosis = probe({"context": retriever, "question": RunnablePassthrough()} | template | lc.model, QUERIES)
    assert diagnosis.findings[0].kind == "score"
    assert diagnosis.lost_tokens > 100


def test_langchain_document_prompt_with_score_and_with_source(lc):
    from langchain_core.prompts import PromptTemplate

    def diagnosed(template):
        retriever = lc.retriever(SHARED_FIRST, lc.scores)
        return probe(retrieval_chain(lc, retriever, document_prompt=PromptTemplate.from_template(template)), QUERIES)

    assert diagnosed("score: {score}\n{page_content}").kinds == ("score",)
    assert diagnosed("source: {source}\n{page_content}").fine


def test_langchain_clock_in_the_system_message(lc):
    times = iter(["10:59", "11:02"])
    system = ("system", "It is {now} o'clock.\n" + SYSTEM)
    chain = retrieval_chain(lc, lc.retriever(SHARED_FIRST), system, ("human", "{input}"))
    diagnosis = probe(chain, QUERIES, make_input=lambda query: {"input": query, "now": next(times)})
    assert diagnosis.kinds == ("clock",)
    assert diagnosis.pairs[0].precedes_documents


def test_langchain_history_aware_chain_compares_like_with_like(lc):
    from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
    from langchain_classic.chains.combine_documents import create_stuff_documents_chain

    asking = prompt_of(("placeholder", "{chat_history}"), ("human", "{input}"), ("human", "Say it in one question."))
    answering = prompt_of(("system", SYSTEM), ("placeholder", "{chat_history}"), ("human", "{input}"))
    history = [("human", "Tell me of trees."), ("ai", "Gladly.")]
    lc.model.responses = ["A or not?", "So it is.", "B or not?", "So it is."]
    chain = create_retrieval_chain(
        create_history_aware_retriever(lc.model, lc.retriever(SHARED_FIRST), asking),
        create_stuff_documents_chain(lc.model, answering),
    )
    recording = record(chain, QUERIES, make_input=lambda query: {"input": query, "chat_history": history})
    assert [len(prompt.prompt) for prompt in recording.prompts] == [4, 4, 4, 4]
    lc.model.i = 0
    diagnosis = probe(chain, QUERIES, make_input=lambda query: {"input": query, "chat_history": history})
    assert [(pair.prompt, pair.against) for pair in diagnosis.pairs][1:] == [(2, 0), (3, 1)]
    assert diagnosis.pairs[2].reused_tokens > 150


def test_langchain_classic_and_completion_models(lc):
    from langchain_classic.chains import RetrievalQA
    from langchain_core.language_models.fake import FakeListLLM

    chain = RetrievalQA.from_chain_type(FakeListLLM(responses=["So."]), retriever=lc.retriever())
    recording = record(chain, QUERIES)
    assert [type(prompt.prompt) for prompt in recording.prompts] == [str, str]
    assert set(recording.documents) == set(TEXTS.values())
    assert probe(chain, QUERIES).kinds == ("document_order", "document_set")


def test_langchain_agent_with_tools_extends_its_prompt(lc):
    require("langchain")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import create_retriever_tool

    class Calling(GenericFakeChatModel):
        tools: list = []

        def bind_tools(self, tools, **options):
            from langchain_core.utils.function_calling import convert_to_openai_tool

            return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def call(query):
        return AIMessage("", tool_calls=[{"name": "trees", "args": {"query": query}, "id": query[0]}])

    model = Calling(messages=iter([call(QUERIES[0]), "One.", call(QUERIES[1]), "Two."]))
    agent = create_agent(model, [create_retriever_tool(lc.retriever(), "trees", "Finds texts about trees.")])
    recording = record(agent, QUERIES)
    assert [len(prompt.prompt) for prompt in recording.prompts] == [1, 3, 1, 3]
    assert recording.prompts[0].tools[0]["function"]["name"] == "trees"
    model.messages = iter([call(QUERIES[0]), "One.", call(QUERIES[1]), "Two."])
    diagnosis = probe(agent, QUERIES)
    assert [f.kind for f in diagnosis.pairs[0].findings] == ["appended"]
    assert [f.kind for f in diagnosis.pairs[2].findings] == ["appended"]


def test_langchain_config_reaches_the_chain(lc):
    from langchain_core.runnables import RunnableLambda

    seen = []
    chain = (
        RunnableLambda(lambda query, config: (seen.append(config["configurable"]["thread_id"]), query)[1]) | lc.model
    )
    probe(chain, QUERIES, config={"configurable": {"thread_id": "t"}})
    assert seen == ["t", "t"]


def test_a_chain_that_does_not_say_where_the_question_goes(lc):
    chain = prompt_of(("human", "{a} and {b}")) | lc.model
    with pytest.raises(RequestError, match="'a', 'b'.*make_input"):
        probe(chain, QUERIES)
    assert probe(chain, QUERIES, make_input=lambda query: {"a": query, "b": "x"}).fine
    assert probe(prompt_of(("human", "{topic}")) | lc.model, QUERIES).fine


def test_a_retriever_alone_sends_no_prompt(lc):
    with pytest.raises(RequestError, match="2 questions made 0 calls to a model"):
        probe(lc.retriever(), QUERIES)


def test_errors_of_the_pipeline_come_through(lc):
    with pytest.raises(KeyError):
        probe(retrieval_chain(lc, lc.retriever()), ["A?", "Zzz?"])


# --- LlamaIndex


@pytest.fixture
def li():
    """Parts of a LlamaIndex pipeline; ``li.retriever(table, metadata)`` finds by the first letter of the question."""
    require("llama_index.core")
    from types import SimpleNamespace

    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
    from llama_index.core.llms.callbacks import llm_completion_callback
    from llama_index.core.schema import NodeWithScore, TextNode

    class Model(CustomLLM):
        chat_model: bool = True

        @property
        def metadata(self):
            return LLMMetadata(context_window=100_000, is_chat_model=self.chat_model)

        @llm_completion_callback()
        def complete(self, prompt, formatted=False, **options):
            return CompletionResponse(text="So it is.")

        @llm_completion_callback()
        def stream_complete(self, prompt, formatted=False, **options):
            yield CompletionResponse(text="So it is.", delta="So it is.")

    class Table(BaseRetriever):
        def __init__(self, table=FOUND, metadata_of=None):
            super().__init__()
            self.table, self.metadata_of = table, metadata_of or (lambda question, rank: {})

        def _retrieve(self, query_bundle):
            query = query_bundle.query_str
            return [
                NodeWithScore(node=TextNode(id_=n, text=TEXTS[n], metadata=self.metadata_of(query, rank)), score=0.5)
                for rank, n in enumerate(self.table[query[0]])
            ]

    def scores(question, rank):
        return {"file_name": "trees.md", "retrieval_score": 0.91 - 0.1 * rank - (0.0371 if question[0] == "B" else 0)}

    return SimpleNamespace(model=Model(), completions=Model(chat_model=False), retriever=Table, scores=scores)


def query_engine(li, *, model=None, retriever=None, **options):
    from llama_index.core.query_engine import RetrieverQueryEngine

    return RetrieverQueryEngine.from_args(retriever or li.retriever(), llm=model or li.model, **options)


def test_llama_index_query_engine(li):
    before = probe(query_engine(li), QUERIES)
    assert before.kinds == ("document_order", "document_set")
    after = probe(query_engine(li, retriever=li.retriever(SHARED_FIRST)), QUERIES)
    assert after.fine
    assert after.pairs[0].documents_before == 3
    assert after.reused_tokens > before.reused_tokens + 100


def test_llama_index_after_our_postprocessor(li):
    from contextpilot_integrations.llama_index import ContextPilotPostprocessor

    diagnosis = probe(query_engine(li, node_postprocessors=[ContextPilotPostprocessor()]), QUERIES)
    assert diagnosis.fine
    assert diagnosis.pairs[0].documents_before == 3


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
def test_llama_index_calls_are_recorded_once(li, chat, streaming):
    engine = query_engine(li, model=li.model if chat else li.completions, streaming=streaming)
    recording = record(engine, QUERIES)
    assert len(recording.prompts) == 2
    assert all(isinstance(prompt.prompt, str) is not chat for prompt in recording.prompts)
    assert set(recording.documents) == set(TEXTS.values())
    assert [prompt.question for prompt in recording.prompts] == QUERIES


def test_llama_index_scores_in_the_metadata(li):
    assert probe(query_engine(li, retriever=li.retriever(SHARED_FIRST, li.scores)), QUERIES).kinds == ("score",)


def test_llama_index_question_first_template(li):
    from llama_index.core.prompts import PromptTemplate

    template = PromptTemplate("Question: {query_str}\nContext:\n{context_str}\nAnswer: ")
    engine = query_engine(li, retriever=li.retriever(SHARED_FIRST), text_qa_template=template)
    diagnosis = probe(engine, QUERIES)
    assert diagnosis.findings[0].kind == "question_before_context"
    assert diagnosis.pairs[0].precedes_documents


def test_llama_index_context_chat_engine(li):
    from llama_index.core.chat_engine import ContextChatEngine

    def engine(table):
        return ContextChatEngine.from_defaults(retriever=li.retriever(table), llm=li.model, system_prompt="Be brief.")

    assert "document_order" in probe(engine(FOUND), QUERIES).kinds
    same = probe(engine({"A": NAMES[:4], "B": NAMES[:4]}), QUERIES)
    assert [f.kind for f in same.findings] == ["appended"]
    assert same.pairs[0].reused_tokens_upper >= same.pairs[0].reused_tokens > 200


def test_llama_index_condense_plus_context_chat_engine(li):
    from llama_index.core.chat_engine import CondensePlusContextChatEngine

    table = {**SHARED_FIRST, "S": SHARED_FIRST["B"]}  # the model condenses every question to "So it is."
    engine = CondensePlusContextChatEngine.from_defaults(retriever=li.retriever(table), llm=li.model)
    recording = record(engine, QUERIES)
    assert len(recording.prompts) == 3
    engine.reset()
    assert probe(engine, QUERIES).pairs


def test_llama_index_events_of_others_are_not_recorded(li):
    from llama_index.core.instrumentation import get_dispatcher

    before = list(get_dispatcher().event_handlers)
    other = query_engine(li)
    engine = query_engine(li)
    original = engine.retriever._retrieve

    def with_company(bundle):
        thread = threading.Thread(target=lambda: other.query("A and another one"))
        thread.start()
        thread.join()
        return original(bundle)

    engine.retriever._retrieve = with_company
    assert [prompt.question for prompt in record(engine, QUERIES).prompts] == QUERIES
    assert list(get_dispatcher().event_handlers) == before


def test_llama_index_listener_goes_away_after_an_error(li):
    from llama_index.core.instrumentation import get_dispatcher

    before = list(get_dispatcher().event_handlers)
    with pytest.raises(KeyError):
        record(query_engine(li), ["Zzz?"])
    assert list(get_dispatcher().event_handlers) == before


def test_llama_index_takes_no_langchain_arguments(li):
    with pytest.raises(RequestTypeError, match="for LangChain"):
        probe(query_engine(li), QUERIES, config={"tags": []})


# --- both


def test_other_objects_are_refused():
    with pytest.raises(RequestTypeError, match="pipeline is a object; give a LangChain runnable"):
        probe(object(), QUERIES)


@pytest.mark.parametrize("queries", ["one text", ["one"], []])
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
