"""Prompts of the stock chains, with and without us: the shapes of section 3 of the framework notes."""

import random

import pytest

from contextpilot_core import ReuseEngine
from tests.conftest import require

require("langchain_core")
require("langchain_classic")

from langchain_classic.chains import RetrievalQA, create_history_aware_retriever, create_retrieval_chain  # noqa: E402
from langchain_classic.chains.combine_documents import create_stuff_documents_chain  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate  # noqa: E402
from langchain_core.runnables import RunnablePassthrough  # noqa: E402

from contextpilot_integrations.langchain import (  # noqa: E402
    ContextPilotRetriever,
    create_contextpilot_prompt,
    format_context,
)
from tests.integrations.langchain_fakes import Lists, Recorder, chatml, common, names_in, query, text_of  # noqa: E402

SYSTEM = ChatPromptTemplate.from_messages(
    [("system", "Answer from the context:\n\n{context}"), ("placeholder", "{chat_history}"), ("human", "{input}")]
)
CONTEXT_FIRST = "Answer from this context:\n\n{context}\n\nQuestion: {question}"
QUESTION_FIRST = (  # rlm/rag-prompt
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
    "question. If you don't know the answer, just say that you don't know. Use three sentences maximum and keep the "
    "answer concise.\nQuestion: {question} \nContext: {context} \nAnswer:"
)


def joined(documents):
    return "\n\n".join(found.page_content for found in documents)


def stuff(retriever, llm, prompt=SYSTEM, **options):
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, prompt, **options))
    return lambda asked: chain.invoke({"input": asked})


def with_prompt(words):
    return lambda retriever, llm: stuff(retriever, llm, document_prompt=PromptTemplate.from_template(words))


def lcel(template, join=joined):
    def build(retriever, llm):
        context = retriever | join if join else retriever
        prompt = ChatPromptTemplate.from_template(template)
        return ({"context": context, "question": RunnablePassthrough()} | prompt | llm).invoke

    return build


def retrieval_qa(retriever, llm):
    chain = RetrievalQA.from_chain_type(llm, retriever=retriever)
    return lambda asked: chain.invoke({"query": asked})


def history_aware(retriever, llm):
    rephrase = ChatPromptTemplate.from_messages([("placeholder", "{chat_history}"), ("human", "{input}")])
    rewriter = Recorder(answer=lambda messages: AIMessage(messages[-1].content))
    chain = create_retrieval_chain(
        create_history_aware_retriever(rewriter, retriever, rephrase), create_stuff_documents_chain(llm, SYSTEM)
    )
    history = []

    def ask(asked):
        answer = chain.invoke({"input": asked, "chat_history": list(history)})
        history.extend([HumanMessage(asked), AIMessage(answer["answer"])])

    return ask


SHARED = {"D1", "D2", "D3"}
SHAPES = {  # name -> (builder, scores in the metadata, documents that can be reused)
    "create_retrieval_chain, context in system": (stuff, False, SHARED),
    "LCEL, context before question": (lcel(CONTEXT_FIRST), False, SHARED),
    "LCEL, question before context": (lcel(QUESTION_FIRST), False, set()),
    "LCEL without format_docs": (lcel(CONTEXT_FIRST, None), True, set()),
    "RetrievalQA": (retrieval_qa, False, SHARED),
    "document_prompt with score": (with_prompt("{score}: {page_content}"), True, set()),
    "document_prompt with source": (with_prompt("{source}: {page_content}"), True, SHARED),
    "history-aware chain, turn 1 to 2": (history_aware, False, SHARED),
    "our prompt": (lambda r, m: stuff(r, m, create_contextpilot_prompt("Be brief.")), False, SHARED),
    "format_context": (lcel(CONTEXT_FIRST, format_context), False, SHARED),
}


def prompts(build, retriever):
    llm = Recorder()
    ask = build(retriever, llm)
    for name in "AB":
        ask(query(name))
    return [chatml(prompt) for prompt in llm.prompts]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_common_prefix_is_that_of_an_ideal_order(shape):
    build, scores, reusable = SHAPES[shape]
    plain = common(*prompts(build, Lists(scores=scores)))
    ideal = common(*prompts(build, Lists(scores=scores, ideal=True)))
    first, second = prompts(build, ContextPilotRetriever(base_retriever=Lists(scores=scores), engine=ReuseEngine()))
    ours = common(first, second)
    assert ours >= ideal
    assert names_in(first[:ours]) == reusable
    if reusable:
        assert ours - plain > 2.9 * len(text_of("D1"))
    # nothing was lost on the way
    assert names_in(first) == {"D1", "D2", "D3", "D4"}
    assert names_in(second) == {"D1", "D2", "D3", "D5"}
    assert "by relevance" not in second


def test_stock_chain_with_history_never_misses_a_document():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    llm = Recorder()
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, SYSTEM))
    dice = random.Random(5)
    for session_id in ("u", "v", None):
        history = []
        for _ in range(25):
            names = dice.choices([f"D{n}" for n in range(1, 9)], k=dice.randint(1, 6))
            config = {"configurable": {"session_id": session_id}} if session_id else {}
            asked = f"{','.join(names)} what is known?"
            answer = chain.invoke({"input": asked, "chat_history": list(history)}, config)
            history += [HumanMessage(asked), AIMessage(answer["answer"])]
            assert names_in(llm.prompts[-1][0].content) == set(names)


def test_the_same_documents_in_another_order_reuse_the_whole_context():
    retriever = ContextPilotRetriever(base_retriever=Lists(), engine=ReuseEngine())
    llm = Recorder()
    chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, SYSTEM))
    for names in ("D3,D1,D2", "D1,D2,D3", "D2,D3,D1"):
        chain.invoke({"input": f"{names} what?"}, {"configurable": {"thread_id": "t"}})
    assert len({prompt[0].content for prompt in llm.prompts}) == 1
