"""Retriever tools and LlamaIndex's agents with our hook in the tool: the one stock path where context persists."""

import asyncio
import itertools

import pytest

from tests.conftest import require

require("llama_index.core")

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent  # noqa: E402
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock  # noqa: E402
from llama_index.core.llms.mock import MockFunctionCallingLLM  # noqa: E402
from llama_index.core.memory import Memory  # noqa: E402
from llama_index.core.tools import RetrieverTool  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from contextpilot_integrations.session import session  # noqa: E402
from tests.integrations.llama_index_fakes import (  # noqa: E402
    D1,
    D2,
    D3,
    D5,
    TABLE,
    Recorder,
    TableRetriever,
    chatml,
    texts,
)


def tool_of(hook):
    return RetrieverTool.from_defaults(
        TableRetriever(), node_postprocessors=[hook], name="search", description="Finds."
    )


def calling_llm(prompts):
    """A model that calls the tool with the user's question once, then answers."""
    numbers = itertools.count()

    def reply(messages, **options):
        prompts.append(list(messages))
        if messages[-1].role == MessageRole.TOOL:
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"answer {len(prompts)}")
        call = ToolCallBlock(
            tool_call_id=f"call-{next(numbers)}", tool_name="search", tool_kwargs={"input": messages[-1].content}
        )
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])

    def streamed(messages, **options):
        async def one():
            yield reply(messages)

        return one()

    return MockFunctionCallingLLM(response_generator=streamed, is_chat_model=True)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["call", "acall"])
def test_a_retriever_tool_gives_the_order_of_the_cache(asynchronous):
    hook = ContextPilotPostprocessor()
    tool = tool_of(hook)
    for question in ("qA what", "qB what"):
        output = asyncio.run(tool.acall(question)) if asynchronous else tool.call(question)
    assert texts(output.raw_output)[:3] == [D1, D2, D3]
    assert output.content.strip() == "\n\n".join([D1, D2, D3, D5])
    assert hook.engine.stats().planned == 2


@pytest.mark.parametrize("workflow", [False, True], ids=["FunctionAgent", "AgentWorkflow"])
def test_function_agents_see_every_document_and_their_prompts_grow_only(workflow):
    prompts = []
    hook = ContextPilotPostprocessor()
    agent = FunctionAgent(tools=[tool_of(hook)], llm=calling_llm(prompts), system_prompt="Search first.")
    runner = AgentWorkflow(agents=[agent]) if workflow else agent
    memory = Memory.from_defaults(session_id="u", token_limit=100_000)

    async def talk():
        with session("u"):
            return [str(await runner.run(user_msg=f"{name} what?", memory=memory)) for name in ("qA", "qB", "qA")]

    answers = asyncio.run(talk())
    assert all("answer" in answer for answer in answers)
    assert hook.engine.stats().planned == 3
    assert hook._orders.last("default", "u")
    results = [[m.content for m in messages if m.role == MessageRole.TOOL][-1] for messages in prompts[1::2]]
    for name, result in zip(("qA", "qB", "qA"), results, strict=True):
        assert all(result.count(text) == 1 for text in TABLE[name])
    written = [chatml(messages) for messages in prompts]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(written))


def test_a_react_agent_sees_every_document():
    def reply(messages):
        if "Observation:" in (messages[-1].content or ""):
            return "Thought: I can answer.\nAnswer: found"
        return 'Thought: I need a tool.\nAction: search\nAction Input: {"input": "qA"}'

    llm = Recorder(reply)
    agent = ReActAgent(tools=[tool_of(ContextPilotPostprocessor())], llm=llm)

    async def talk():
        return str(await agent.run(user_msg="qA what?"))

    assert asyncio.run(talk()) == "found"
    assert all(text in llm.prompts[-1] for text in TABLE["qA"])
    assert D2 in llm.prompts[-1]
