"""Which conversation a call belongs to."""

import asyncio

import pytest

from contextpilot_integrations.session import session
from tests.conftest import require

require("llama_index.core")

from llama_index.core.chat_engine import ContextChatEngine  # noqa: E402
from llama_index.core.memory import ChatMemoryBuffer, Memory  # noqa: E402
from llama_index_instrumentation.dispatcher import instrument_tags  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from contextpilot_integrations.llama_index.sessions import find_session  # noqa: E402
from tests.integrations.llama_index_fakes import D1, D2, Recorder, TableRetriever  # noqa: E402
from tests.integrations.llama_index_hooks import nodes, query_engine  # noqa: E402


def sessions_of(hook, ways):
    """Run calls; return which sessions the hook's memory of orders then knows."""
    hook.postprocess_nodes(nodes(D1, D2))
    return [name for name in ways if hook._orders.last("default", name)]


NAMES = ("variable", "tag", "field", "memory")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("tag", "variable", "field", "memory"), "tag"),
        (("variable", "field", "memory"), "variable"),
        (("field", "memory"), "field"),
        (("memory",), "memory"),
        ((), None),
    ],
)
def test_where_the_session_comes_from(given, expected):
    hook = ContextPilotPostprocessor(
        session_id="field" if "field" in given else None,
        memory=Memory.from_defaults(session_id="memory") if "memory" in given else None,
    )
    tags = {"session_id": "tag"} if "tag" in given else {"unrelated": 1}
    with instrument_tags(tags):
        if "variable" in given:
            with session("variable"):
                found = sessions_of(hook, NAMES)
        else:
            found = sessions_of(hook, NAMES)
    assert found == ([expected] if expected else [])
    assert len(hook._orders) == bool(expected)


@pytest.mark.parametrize("way", ["query", "aquery", "chat", "achat"])
@pytest.mark.parametrize("key", ["session_id", "thread_id", "conversation_id"])
def test_tags_reach_the_hook_inside_engines(way, key):
    hook = ContextPilotPostprocessor()
    chats = ContextChatEngine.from_defaults(TableRetriever(), llm=Recorder(), node_postprocessors=[hook])
    engine = chats if "chat" in way else query_engine(hook)

    async def ask():
        with instrument_tags({key: 17}):
            result = getattr(engine, way)("qA")
            return await result if way.startswith("a") else result

    asyncio.run(ask())
    assert hook._orders.last("default", "17")


def test_a_bound_memory_is_asked_at_every_call():
    memory = Memory.from_defaults(session_id="one")
    hook = ContextPilotPostprocessor(memory=memory)
    assert hook.memory is memory
    assert sessions_of(hook, ["one", "two"]) == ["one"]
    memory.session_id = "two"
    assert sessions_of(hook, ["one", "two"]) == ["one", "two"]


def test_the_first_place_that_names_a_session_counts():
    memory = Memory.from_defaults(session_id="memory")
    with session("variable"):
        with instrument_tags({"session_id": "tag"}):
            assert find_session("field", memory) == "tag"
        assert find_session("field", memory) == "variable"
    assert find_session("field", memory) == "field"
    assert find_session(None, memory) == "memory"
    assert find_session(None, None) is None, "stateless, never a session that all share"


def test_tags_have_an_order_and_any_value_is_a_name():
    named = {"conversation_id": 0, "thread_id": 17, "session_id": "s"}
    for name in ("s", "17", "0"):
        with instrument_tags(named):
            assert find_session(None, None) == name
        named.popitem()
    with instrument_tags({"session_id": "", "thread_id": None}):
        assert find_session("", None) is None


def test_a_memory_without_a_session_names_none():
    assert find_session(None, object()) is None
    assert find_session("", ChatMemoryBuffer.from_defaults()) is None
