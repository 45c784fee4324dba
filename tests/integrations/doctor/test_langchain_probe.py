"""The doctor on real LangChain pipelines: the prompt shapes of the docs, and what is wrong with each."""

from functools import partial

import pytest

from contextpilot_core.errors import RequestError
from contextpilot_integrations.doctor import probe, record
from tests.conftest import require
from tests.integrations.probed_pipelines import FOUND, QUERIES, SHARED_FIRST, SYSTEM, TEXTS, prompt_of, retrieval_chain


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
    (remark,) = diagnosis.remarks
    assert remark.startswith(
        "results of the tool 'trees' stay as they are, and are not de-duplicated: they bring no doc"
    )
    assert f"Note: {remark}." in diagnosis.explain()
    assert not any(text[:20] in diagnosis.explain() for text in TEXTS.values())


def test_langchain_tool_results_that_can_be_taken_apart_are_not_remarked(lc):
    require("langchain")
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.tools import tool

    from contextpilot_integrations.langchain import create_contextpilot_retriever_tool
    from tests.integrations.langchain_fakes import Recorder

    @tool
    def length(query: str) -> str:
        """Measure."""
        return str(len(query))

    @tool(response_format="content_and_artifact")
    def shortened(query: str):
        """Find, and show the beginnings."""
        found = lc.retriever().invoke(query)
        return "\n".join(each.page_content[:9] for each in found), found

    def answer(name, messages):
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("So.")
        return AIMessage("", tool_calls=[{"name": name, "args": {"query": messages[-1].content}, "id": "1"}])

    found = create_contextpilot_retriever_tool(lc.retriever(), "trees", "Finds texts about trees.")
    for name, remarks in (("trees", 0), ("length", 0), ("shortened", 1)):
        model = Recorder(answer=partial(answer, name))
        assert len(record(create_agent(model, [found, length, shortened]), QUERIES).remarks) == remarks


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


def test_errors_of_the_pipeline_come_through(lc):
    with pytest.raises(KeyError):
        probe(retrieval_chain(lc, lc.retriever()), ["A?", "Zzz?"])
