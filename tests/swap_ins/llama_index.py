"""LlamaIndex's own query engines, response modes, chat engines and agents."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from tests.integrations.llama_index_fakes import Recorder, chatml
from tests.swap_ins.measure import FOUND, QUESTIONS, SwapIn, Turn, page_of, source_of, text_of


class Search(BaseRetriever):
    """Finds what the table says about the first key in the question."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        key = next((key for key in FOUND if key in query_bundle.query_str), None)
        return [node(name, rank) for rank, name in enumerate(FOUND.get(str(key), ()))]


def node(name: str, rank: int) -> NodeWithScore:
    data = {"source": source_of(name), "page": page_of(name)}
    return NodeWithScore(node=TextNode(id_=f"id-{name}", text=text_of(name), metadata=data), score=0.9 - rank / 10)


def reply(messages: list[ChatMessage]) -> str:
    """Answer a prompt as the parts of LlamaIndex that ask for more than an answer expect it."""
    words = str(messages[-1].content)
    if follow_up := re.findall(r"<Follow Up Message>\s*(.*?)\s*<Standalone question>", words, re.DOTALL):
        return str(follow_up[0])
    if "Follow Up Input" in words:
        return str(re.findall(r"Follow Up Input: (.*)", words)[0])
    return f"Answer {len(words)}."


def run(swap: SwapIn, swapped: bool) -> list[Turn]:
    """Ask all questions, one after the other."""
    llm = Recorder(reply=reply)
    names: dict[str, Any] = {"llm": llm, "search": Search(), "calling": calling, "asyncio": asyncio}
    exec(compile(PRELUDE + swap.text(swapped=swapped), swap.name, "exec"), names)
    turns = []
    for question in QUESTIONS:
        before = len(llm.messages)
        result = names["ask"](question)
        turn = Turn(question, [chatml(messages) for messages in llm.messages[before:]], returned(result))
        if "sources" in names and swapped:
            sources = names["sources"](result)
            turn.sources = {label: found.node.node_id for label, found in sources.items()}
        turns.append(turn)
    return turns


def returned(result: Any) -> list[Any] | None:
    nodes: Sequence[NodeWithScore] = getattr(result, "source_nodes", ())
    return [(each.node.node_id, each.node.get_content(), each.node.metadata) for each in nodes] or None


def calling(recorder: Recorder) -> MockFunctionCallingLLM:
    """A model that calls the tool ``search`` once per question, and then answers."""
    from llama_index.core.base.llms.types import TextBlock, ToolCallBlock

    def generate(messages: Sequence[ChatMessage]) -> list[Any]:
        recorder.messages.append(list(messages))
        last = messages[-1]
        if last.role == MessageRole.USER:
            return [
                ToolCallBlock(tool_call_id=f"c{len(messages)}", tool_name="search", tool_kwargs={"input": last.content})
            ]
        return [TextBlock(text=f"Answer {len(messages)}.")]

    def answer(messages: Sequence[ChatMessage], **options: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=generate(messages))

    return MockFunctionCallingLLM(response_generator=answer, is_chat_model=True)


PRELUDE = """
from llama_index.core import PromptTemplate
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine, CondenseQuestionChatEngine, ContextChatEngine, SimpleChatEngine,
)
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.query_engine import (
    CitationQueryEngine, RetrieverQueryEngine, RouterQueryEngine, SubQuestionQueryEngine, RetryQueryEngine,
    TransformQueryEngine, MultiStepQueryEngine,
)
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.workflow import Context

from contextpilot_core import ReuseEngine
from contextpilot_integrations.llama_index import *

engine = ReuseEngine()
"""

HOOK = {"postprocessors = []": "postprocessors = [ContextPilotPostprocessor(engine=engine)]"}


def query_engine(mode: str) -> SwapIn:
    return SwapIn(
        f"`RetrieverQueryEngine`, {mode}",
        f"""
        postprocessors = []
        query_engine = RetrieverQueryEngine.from_args(
            search, llm=llm, response_mode="{mode}", node_postprocessors=postprocessors)
        ask = query_engine.query
        """,
        HOOK,
    )


def chat_engine(name: str, made: str) -> SwapIn:
    return SwapIn(
        f"`{name}`",
        f"""
        postprocessors = []
        chat_engine = {name}.from_defaults({made}, llm=llm)
        ask = chat_engine.chat
        """,
        HOOK,
    )


WITH_HOOK = "search, node_postprocessors=postprocessors"

PIPELINES = [
    *[query_engine(mode) for mode in ("compact", "refine", "tree_summarize", "simple_summarize", "accumulate")],
    SwapIn(
        "`RetrieverQueryEngine`, compact, small window",
        """
        postprocessors = []
        llm.window = 700
        query_engine = RetrieverQueryEngine.from_args(search, llm=llm, node_postprocessors=postprocessors)
        ask = query_engine.query
        """,
        HOOK,
    ),
    SwapIn(
        "`CitationQueryEngine`",
        """
        postprocessors = []
        query_engine = CitationQueryEngine(search, llm=llm, node_postprocessors=postprocessors, citation_chunk_size=64)
        ask = query_engine.query
        """,
        HOOK,
    ),
    chat_engine("ContextChatEngine", WITH_HOOK),
    chat_engine("CondensePlusContextChatEngine", WITH_HOOK),
    chat_engine(
        "CondenseQuestionChatEngine",
        "RetrieverQueryEngine.from_args(search, llm=llm, node_postprocessors=postprocessors)",
    ),
    SwapIn(
        "`RouterQueryEngine`",
        """
        postprocessors = []
        inner = RetrieverQueryEngine.from_args(search, llm=llm, node_postprocessors=postprocessors)
        tools = [QueryEngineTool.from_defaults(inner, name="manuals", description="Manuals.")]
        class First(LLMSingleSelector):
            def _select(self, choices, query):
                from llama_index.core.base.base_selector import SelectorResult, SingleSelection
                return SelectorResult(selections=[SingleSelection(index=0, reason="the only one")])
        router = RouterQueryEngine(First.from_defaults(llm=llm), tools, llm=llm)
        ask = router.query
        """,
        HOOK,
    ),
    SwapIn(
        "`FunctionAgent`, `RetrieverTool`",
        """
        postprocessors = []
        tool = RetrieverTool.from_defaults(
            search, name="search", description="Finds.", node_postprocessors=postprocessors)
        agent = FunctionAgent(tools=[tool], llm=calling(llm), streaming=False)
        memory = Memory.from_defaults()
        async def answer(question):
            return await agent.run(question, memory=memory)
        ask = lambda question: asyncio.run(answer(question))
        """,
        HOOK,
    ),
    SwapIn(
        "`ContextChatEngine` → `ContextPilotChatEngine`",
        """
        chat_engine = ContextChatEngine.from_defaults(search, llm=llm, system_prompt="Be brief.")
        ask = chat_engine.chat
        sources = lambda response: {label: nodes[0] for label, nodes in response.nodes_by_label.items()}
        """,
        {"ContextChatEngine.from_defaults(search,": "ContextPilotChatEngine.from_defaults(search, engine=engine,"},
    ),
    SwapIn(
        "`CondensePlusContextChatEngine` → `ContextPilotChatEngine`",
        """
        chat_engine = CondensePlusContextChatEngine.from_defaults(search, llm=llm)
        ask = chat_engine.chat
        sources = lambda response: {label: nodes[0] for label, nodes in response.nodes_by_label.items()}
        """,
        {
            "CondensePlusContextChatEngine.from_defaults(search,": "ContextPilotChatEngine.from_defaults("
            "search, engine=engine,"
        },
    ),
]
