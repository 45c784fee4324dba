"""LangChain's own chains, retrievers and agents."""

import re
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever

from tests.integrations.langchain_fakes import Recorder, chatml
from tests.swap_ins.measure import FOUND, QUESTIONS, SwapIn, Turn, page_of, source_of, text_of

REPHRASE = "Make the last question a question of its own."


class Search(BaseRetriever):
    """Finds what the table says about the first key in the question; ``sort`` leaves every second document out."""

    part: slice = slice(None)

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        key = next((key for key in FOUND if key in query), None)
        return [document(name) for name in FOUND.get(str(key), ())[self.part]]


def document(name: str) -> Document:
    data = {"source": source_of(name), "page": page_of(name), "title": f"Manual {name}"}
    return Document(id=f"id-{name}", page_content=text_of(name), metadata=data)


def model() -> Recorder:
    """Calls a tool once per question, if it has one; answers with a line."""

    def answer(messages: list[BaseMessage]) -> AIMessage:
        last, words = messages[-1], str(messages[-1].content)
        follow_up = re.findall(r"Follow Up Input: (.*)\nStandalone question:", words)
        if follow_up or messages[0].content == REPHRASE:
            return AIMessage(follow_up[0] if follow_up else words)
        if recorder.tools and isinstance(last, HumanMessage):
            return AIMessage("", tool_calls=[{"name": "search", "args": {"query": words}, "id": f"c{len(messages)}"}])
        return AIMessage(f"Answer {len(messages)}.")

    recorder = _Model(answer=answer)
    return recorder


class _Model(Recorder):
    tools: bool = False

    def get_num_tokens(self, text: str) -> int:
        return len(text) // 4

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Recorder":
        self.tools = True
        return self


def run(swap: SwapIn, swapped: bool) -> list[Turn]:
    """Ask all questions, one after the other."""
    llm = model()
    names: dict[str, Any] = {
        "llm": llm,
        "REPHRASE": REPHRASE,
        "search": Search(),
        "Search": Search,
        "document": document,
    }
    exec(compile(PRELUDE + swap.text(swapped=swapped), swap.name, "exec"), names)
    turns = []
    for question in QUESTIONS:
        before = len(llm.prompts)
        result = names["ask"](question)
        turn = Turn(question, [chatml(prompt) for prompt in llm.prompts[before:]], returned(result))
        if "sources" in names and swapped:
            sources = names["sources"](result)
            turn.sources = {label: found.id for label, found in sources.items()}
            wanted = {f"id-{name}" for name in turn.names}
            turn.returned = [_values(found) for found in sources.values() if found.id in wanted]
        turns.append(turn)
    return turns


def returned(result: Any) -> list[Any] | None:
    found = result.get("context", result.get("source_documents")) if isinstance(result, dict) else None
    return None if not isinstance(found, list) else [_values(each) for each in found]


def _values(found: Document) -> tuple[Any, ...]:
    return found.id, found.page_content, found.metadata


PRELUDE = """
from langchain.agents import create_agent
from langchain_classic.chains import (
    ConversationalRetrievalChain, RetrievalQA, RetrievalQAWithSourcesChain, create_history_aware_retriever,
    create_retrieval_chain,
)
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever, MergerRetriever
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import create_retriever_tool, tool

from contextpilot_core import ReuseEngine
from contextpilot_integrations.langchain import *

engine = ReuseEngine()
prompt = ChatPromptTemplate.from_template("Use this context:\\n\\n{context}\\n\\nQuestion: {question}")
chat_prompt = ChatPromptTemplate.from_messages(
    [("system", "Answer from the context:\\n\\n{context}"), ("placeholder", "{chat_history}"), ("human", "{input}")]
)
rephrase = ChatPromptTemplate.from_messages(
    [("system", REPHRASE), ("placeholder", "{chat_history}"), ("human", "{input}")]
)
with_source = PromptTemplate.from_template("[{title}, {source}, page {page}]\\n{page_content}")
"""

RETRIEVER = {"retriever = search": "retriever = ContextPilotRetriever(base_retriever=search, engine=engine)"}

PIPELINES = [
    SwapIn(
        "LCEL chain",
        """
        retriever = search
        join = lambda found: "\\n\\n".join(each.page_content for each in found)
        chain = {"context": retriever | join, "question": RunnablePassthrough()} | prompt | llm | StrOutputParser()
        ask = chain.invoke
        """,
        RETRIEVER,
    ),
    SwapIn(
        "LCEL chain, `reorder_documents`",
        """
        join = lambda found: "\\n\\n".join(each.page_content for each in found)
        found = search
        chain = {"context": found | join, "question": RunnablePassthrough()} | prompt | llm | StrOutputParser()
        ask = chain.invoke
        """,
        {"found = search": "found = search | reorder_documents(engine)"},
    ),
    SwapIn(
        "`create_retrieval_chain`",
        """
        retriever = search
        chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, chat_prompt))
        ask = lambda question: chain.invoke({"input": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`create_retrieval_chain`, `document_prompt`",
        """
        retriever = search
        stuff = create_stuff_documents_chain(llm, chat_prompt, document_prompt=with_source)
        chain = create_retrieval_chain(retriever, stuff)
        ask = lambda question: chain.invoke({"input": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`create_history_aware_retriever`",
        """
        retriever = search
        found = create_history_aware_retriever(llm, retriever, rephrase)
        chain = create_retrieval_chain(found, create_stuff_documents_chain(llm, chat_prompt))
        history = []
        def ask(question):
            result = chain.invoke({"input": question, "chat_history": list(history)})
            history.extend([HumanMessage(question), AIMessage(result["answer"])])
            return result
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`RetrievalQA`, stuff",
        """
        retriever = search
        chain = RetrievalQA.from_chain_type(llm, retriever=retriever, return_source_documents=True)
        ask = lambda question: chain.invoke({"query": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`RetrievalQA`, refine",
        """
        retriever = search
        chain = RetrievalQA.from_chain_type(llm, "refine", retriever=retriever, return_source_documents=True)
        ask = lambda question: chain.invoke({"query": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`RetrievalQA`, map_reduce",
        """
        retriever = search
        chain = RetrievalQA.from_chain_type(llm, "map_reduce", retriever=retriever, return_source_documents=True)
        ask = lambda question: chain.invoke({"query": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`RetrievalQAWithSourcesChain`",
        """
        retriever = search
        chain = RetrievalQAWithSourcesChain.from_chain_type(llm, retriever=retriever, return_source_documents=True)
        ask = lambda question: chain.invoke({"question": question})
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`ConversationalRetrievalChain`",
        """
        retriever = search
        chain = ConversationalRetrievalChain.from_llm(llm, retriever, return_source_documents=True)
        history = []
        def ask(question):
            result = chain.invoke({"question": question, "chat_history": list(history)})
            history.append((question, result["answer"]))
            return result
        """,
        RETRIEVER,
    ),
    SwapIn(
        "`ContextualCompressionRetriever`",
        """
        retriever = search
        chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, chat_prompt))
        ask = lambda question: chain.invoke({"input": question})
        """,
        {
            "retriever = search": "retriever = ContextualCompressionRetriever("
            "base_retriever=search, base_compressor=ContextPilotCompressor(engine=engine))"
        },
    ),
    SwapIn(
        "`EnsembleRetriever`",
        """
        both = EnsembleRetriever(retrievers=[Search(part=slice(0, 3)), Search(part=slice(1, 4))])
        retriever = both
        chain = create_retrieval_chain(retriever, create_stuff_documents_chain(llm, chat_prompt))
        ask = lambda question: chain.invoke({"input": question})
        """,
        {"retriever = both": "retriever = ContextPilotRetriever(base_retriever=both, engine=engine)"},
    ),
    SwapIn(
        "`create_agent`, retriever tool",
        """
        tools = [create_retriever_tool(search, "search", "Finds.", response_format="content_and_artifact")]
        middleware = []
        agent = create_agent(llm, tools=tools, middleware=middleware)
        messages = []
        def ask(question):
            messages[:] = agent.invoke({"messages": [*messages, HumanMessage(question)]})["messages"]
            return messages
        sources = sources_of
        """,
        {"middleware = []": "middleware = [ContextPilotMiddleware()]"},
    ),
    SwapIn(
        "`create_agent`, the RAG tool of LangChain's documentation",
        """
        @tool(response_format="content_and_artifact")
        def find(query: str):
            "Retrieve information to help answer a query."
            found = search.invoke(query)
            serialized = "\\n\\n".join((f"Source: {doc.metadata}\\nContent: {doc.page_content}") for doc in found)
            return serialized, found
        find.name = "search"
        middleware = []
        agent = create_agent(llm, tools=[find], middleware=middleware)
        messages = []
        def ask(question):
            messages[:] = agent.invoke({"messages": [*messages, HumanMessage(question)]})["messages"]
            return messages
        sources = sources_of
        """,
        {"middleware = []": "middleware = [ContextPilotMiddleware()]"},
    ),
    SwapIn(
        "`RunnableWithMessageHistory` → `create_contextpilot_chat`",
        """
        history = InMemoryChatMessageHistory()
        stuff = create_stuff_documents_chain(llm, chat_prompt)
        chain = create_retrieval_chain((lambda asked: asked["input"]) | search, stuff)
        chat = RunnableWithMessageHistory(
            chain, lambda session_id: history, input_messages_key="input", output_messages_key="answer",
            history_messages_key="chat_history")
        ask = lambda question: chat.invoke({"input": question}, {"configurable": {"session_id": "u"}})
        sources = sources_of
        """,
        {
            "history = InMemoryChatMessageHistory()\n": "",
            "stuff = create_stuff_documents_chain(llm, chat_prompt)\n": "",
            'chain = create_retrieval_chain((lambda asked: asked["input"]) | search, stuff)\n': "",
            "chat = RunnableWithMessageHistory(\n"
            '    chain, lambda session_id: history, input_messages_key="input", output_messages_key="answer",\n'
            '    history_messages_key="chat_history")': "chat = create_contextpilot_chat(search, llm, engine=engine)",
            'chat.invoke({"input": question}, {"': 'chat.invoke(question, {"',
        },
    ),
]
