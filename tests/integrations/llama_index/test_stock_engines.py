"""Final prompts of the stock engines, with and without us: how far two of them agree, and that nothing is missing.

Query A retrieves [D1, D2, D3, D4], query B [D2, D1, D5, D3]. "Ideal" is query B served as [D1, D2, D3, D5] by hand.
"""

import asyncio
import itertools
import random

import pytest

from contextpilot_core import ReuseEngine
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import ChatMessage  # noqa: E402
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine  # noqa: E402
from llama_index.core.memory import Memory  # noqa: E402
from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: E402
from llama_index.core.response_synthesizers import get_response_synthesizer  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from tests.integrations.llama_index_fakes import (  # noqa: E402
    D1,
    D2,
    D3,
    D4,
    D5,
    TABLE,
    Recorder,
    TableRetriever,
    common,
    document,
    node,
)

IDEAL = {**TABLE, "qB": [D1, D2, D3, D5]}
NAMES = {text: f"D{number}" for number, text in enumerate((D1, D2, D3, D4, D5), 1)}


def with_path(query, rank, text):
    return node(text, 0.5, metadata={"file_path": f"/docs/{NAMES[text]}.md"})


def with_score(query, rank, text):
    score = (97 - rank - 20 * (query == "qB")) / 100
    return node(text, score, metadata={"file_path": f"/docs/{NAMES[text]}.md", "retrieval_score": score})


def with_hidden_score(query, rank, text):
    found = with_score(query, rank, text)
    found.node.excluded_llm_metadata_keys = ["retrieval_score"]
    return found


def query_engine(retriever, hooks, *, chat_model=True):
    llm = Recorder(chat_model=chat_model)
    return llm, RetrieverQueryEngine(retriever, get_response_synthesizer(llm=llm), node_postprocessors=hooks).query


def completion_engine(retriever, hooks):
    return query_engine(retriever, hooks, chat_model=False)


def context_chat(retriever, hooks):
    llm = Recorder()
    return llm, ContextChatEngine.from_defaults(
        retriever, llm=llm, system_prompt="Be kind.", node_postprocessors=hooks
    ).chat


def condense_chat(retriever, hooks):
    llm = Recorder(lambda messages: standalone(messages) or "an answer")
    return llm, CondensePlusContextChatEngine.from_defaults(
        retriever=retriever, llm=llm, system_prompt="Be kind.", node_postprocessors=hooks
    ).chat


def standalone(messages):
    """What a model says that is asked to condense: the key of the last question, in a new string each time."""
    if len(messages) > 1 or "standalone question" not in (messages[0].content or "").lower():
        return None
    return next(key for key in ("qB", "qA") if f"{key} " in (messages[0].content or "")) + f" {random.random()}"


def prompts(make_engine, table, make_node=None, hooks=(), questions=("qA one", "qB two")):
    """Return the final prompts of the questions; those of a condensing step are left out."""
    llm, ask = make_engine(TableRetriever(table, make_node), list(hooks))
    for question in questions:
        ask(question)
    return [prompt for prompt, messages in zip(llm.prompts, llm.messages, strict=True) if standalone(messages) is None]


ROWS = {
    "query engine, chat model": (query_engine, None),
    "query engine, completion model": (completion_engine, None),
    "query engine, file_path": (query_engine, with_path),
    "query engine, hidden score": (query_engine, with_hidden_score),
    "context chat": (context_chat, None),
    "condense plus context chat": (condense_chat, None),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_common_prefix_is_that_of_the_ideal_order(row):
    make_engine, make_node = ROWS[row]
    plain = common(*prompts(make_engine, TABLE, make_node))
    ideal = common(*prompts(make_engine, IDEAL, make_node))
    first, second = prompts(make_engine, TABLE, make_node, [ContextPilotPostprocessor()])
    print(f"{row}: {len(second)} characters, common {plain} in retrieval order, {ideal} ideal, {common(first, second)}")
    assert plain < ideal <= common(first, second)
    assert all(second.count(text) == 1 for text in TABLE["qB"])
    assert D4 not in second or "chat" in row


def test_a_score_in_the_text_leaves_nothing_to_share():
    plain = prompts(query_engine, TABLE, with_score)
    ours = prompts(query_engine, TABLE, with_score, [ContextPilotPostprocessor()])
    assert ours == plain  # every text is a new one: nothing is moved, no note is written
    print(f"query engine, printed score: common {common(*plain)}, {common(*ours)} with us")


@pytest.mark.parametrize("make_engine", [context_chat, condense_chat])
def test_the_same_documents_again_reuse_the_whole_prompt(make_engine):
    for order in ([D1, D2, D3, D4], [D4, D2, D1, D3]):
        table = {"qA": TABLE["qA"], "qB": order}
        for hook in (ContextPilotPostprocessor(session_id="u"), ContextPilotPostprocessor()):
            first, second = prompts(make_engine, table, None, [hook])
            assert second.startswith(first)
            print(f"{make_engine.__name__}, same documents: {common(first, second)} of {len(first)}")


@pytest.mark.parametrize("make_engine", [context_chat, condense_chat, query_engine])
@pytest.mark.parametrize("bound", [True, False], ids=["session", "stateless"])
def test_no_document_of_the_present_turn_is_ever_missing(make_engine, bound):
    chance = random.Random(5)
    pool = [document(f"P{n}") for n in range(9)]
    lists = [chance.sample(pool, chance.randint(1, 6)) for _ in range(40)]
    llm, ask = make_engine(
        retriever := TableRetriever({}), [ContextPilotPostprocessor(session_id="u" if bound else None)]
    )
    for n, wanted in enumerate(lists):
        retriever.table = {"q": wanted}
        llm._reply = lambda messages: "q again" if "standalone question" in (messages[0].content or "") else "answer"
        ask(f"q {n}")
        system = llm.messages[-1][0].content or "" if make_engine is not query_engine else llm.prompts[-1]
        assert all(system.count(text) == 1 for text in wanted)
        assert not any(text in system for text in pool if text not in wanted)
        assert "See [Doc" not in llm.prompts[-1]


def test_two_conversations_keep_their_own_order():
    engine = ReuseEngine()
    last = {}
    llms = {}
    asks = {}
    for name in ("u", "v"):
        memory = Memory.from_defaults(session_id=name, token_limit=100_000)
        llms[name] = Recorder()
        asks[name] = ContextChatEngine.from_defaults(
            TableRetriever({"first": TABLE["qA"] if name == "u" else TABLE["qB"], "again": [D3, D2, D1]}),
            llm=llms[name],
            memory=memory,
            node_postprocessors=[ContextPilotPostprocessor(engine=engine, memory=memory)],
        ).chat
    for question, name in itertools.product(("first", "again", "again"), ("u", "v")):
        asks[name](question)
        prompt = llms[name].prompts[-1]
        last.setdefault(name, []).append(prompt)
    for name in ("u", "v"):
        assert last[name][2].startswith(last[name][1])


def test_users_texts_with_braces_are_left_to_the_framework():
    """LlamaIndex formats its history again: what a user writes is not ours to change, and we add no braces."""
    llm = Recorder()
    chats = ContextChatEngine.from_defaults(
        TableRetriever(), llm=llm, node_postprocessors=[ContextPilotPostprocessor()]
    )
    chats.chat("qA {x}")
    chats.chat("qB {y} {z}")
    assert llm.messages[-1][-1] == ChatMessage(role="user", content="qB {y} {z}")


def test_async_prompts_are_the_same():
    def run(asynchronous):
        llm = Recorder()
        chats = ContextChatEngine.from_defaults(
            TableRetriever(), llm=llm, node_postprocessors=[ContextPilotPostprocessor(session_id="u")]
        )

        async def talk():
            for question in ("qA", "qB", "qA"):
                await chats.achat(question) if asynchronous else chats.chat(question)

        asyncio.run(talk()) if asynchronous else [chats.chat(question) for question in ("qA", "qB", "qA")]
        return llm.prompts

    assert run(True) == run(False)
