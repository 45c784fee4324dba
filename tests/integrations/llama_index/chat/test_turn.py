"""One turn as LlamaIndex's messages: what is sent, and what the memory gets of it."""

import asyncio

import pytest

from contextpilot_core import EngineConfig, RequestError, ReuseEngine
from contextpilot_integrations.serving.chat import Held, Setting, Usage
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock  # noqa: E402
from llama_index.core.memory import ChatMemoryBuffer, Memory  # noqa: E402
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo  # noqa: E402

from contextpilot_integrations.llama_index.chat.finding import Found  # noqa: E402
from contextpilot_integrations.llama_index.chat.history import RECORD, openai_form, question_of  # noqa: E402
from contextpilot_integrations.llama_index.chat.template import ContextTemplate  # noqa: E402
from contextpilot_integrations.llama_index.chat.turn import ChatTurn, TurnMemory  # noqa: E402
from tests.integrations.llama_index_chats import WAYS, stored  # noqa: E402
from tests.integrations.llama_index_fakes import D1, D2, D3, node, texts, uncopyable  # noqa: E402

SYSTEM = ChatMessage(role="system", content="Be brief.")
OK = ChatMessage(role="assistant", content="ok")
HELD = Held((None, 0))


def turn_of(question, *documents, stored=(), engine=None, room=100_000, prefix=(SYSTEM,), template=None, **setting):
    made = Setting(
        engine=engine or ReuseEngine(),
        count=lambda text: len(text.split()),
        prefix=tuple(openai_form(prefix)),
        **setting,
    )
    found = Found(f"looked for {question}", [node(text, 0.5) for text in documents])
    options = {"template": template, "room": room, "scale": 1.0, "extra_body": {"cache_salt": "s"}}
    return ChatTurn(made, question, found, list(stored), **options)


def test_a_prompt_is_the_prefix_the_history_and_the_question_without_records():
    first = turn_of("one", D1, D2)
    turn = turn_of("two", D2, D3, stored=[first.user, OK])
    prompt = turn.prompt([SYSTEM])
    assert prompt[0] is SYSTEM
    assert [message.content for message in prompt[1:3]] == [first.user.content, "ok"]
    assert prompt[3].content == f"See [Doc 2] above.\n[Doc 3]\n===\n{D3}\n===\n\ntwo"
    assert all(RECORD not in message.additional_kwargs for message in prompt)
    assert turn.history == [first.user, OK]
    assert (turn.rewritten, question_of(turn.user)) == (False, "two")


def test_sources_are_reported_as_llama_index_does():
    turn = turn_of("one", D1, D2)
    (source,) = turn.sources
    assert (source.tool_name, source.raw_input) == ("retriever", {"message": "looked for one"})
    assert texts(source.raw_output) == texts(turn.nodes) == [D1, D2]


def test_a_history_that_was_cut_is_made_anew():
    first = turn_of("one", D1)
    second = turn_of("two", D1, stored=[first.user, OK])
    turn = turn_of("three", D1, stored=[second.user, OK])
    assert turn.rewritten
    assert turn.history[0].content == f"[Doc 1]\n===\n{D1}\n===\n\ntwo"
    assert turn.history[1] is OK
    assert turn.user.content == "See [Doc 1] above.\n\nthree"


def test_a_template_stands_around_the_documents_and_nothing_else():
    template = ContextTemplate("Use this:\n{context_str}\nAnswer {query_str}")
    first = turn_of("one", D1, template=template)
    assert first.user.content == f"Use this:\n[Doc 1]\n===\n{D1}\n===\n\nAnswer one"
    assert question_of(first.user) == "one"
    second = turn_of("two", D1, D2, stored=[first.user, OK], template=template)
    assert second.user.content == f"Use this:\nSee [Doc 1] above.\n[Doc 2]\n===\n{D2}\n===\n\nAnswer two"
    assert (second.rewritten, second.turn.plan.recognised) == (False, (False, True, False))
    cut = turn_of("three", stored=[second.user, OK], template=None)
    assert cut.history[0].content == f"Use this:\n[Doc 1]\n===\n{D1}\n===\n[Doc 2]\n===\n{D2}\n===\n\nAnswer two"
    assert turn_of("none", template=template).user.content == "none"


def test_a_prompt_that_does_not_fit_drops_turns():
    stored = []
    for number in range(4):
        stored += [turn_of(f"q {number}", D1, D2, stored=stored).user, OK]
    turn = turn_of("last", D3, stored=stored, room=150, window=150)
    assert turn.rewritten
    assert len(turn.history) < 8
    with_everything = turn_of("last", D3, stored=stored, room=100_000)
    assert (with_everything.rewritten, len(with_everything.history)) == (False, 8)


def test_what_the_engine_refuses_is_refused():
    with pytest.raises(RequestError, match="namespace"):
        turn_of("one", D1, namespace="\ud800")


def test_figures_are_told_with_the_salt_of_the_request():
    engine = ReuseEngine(EngineConfig(note="none"))
    turn = turn_of("one", D1, engine=engine)
    turn.turn.sent()
    figures = turn.figures(Usage(prompt_tokens=10, cached_tokens=5), None)
    assert (figures.hit_rate, figures.request_id) == (0.5, turn.turn.plan.request_id)
    assert engine.stats().compared == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tokens_are_asked_for_the_whole_prompt(asynchronous):
    asked = []

    class Tokenizer:
        def read(self, plan, messages, **options):
            asked.append((plan, messages, options))
            return "tokens"

    turn = turn_of("one", D1)

    def read(tokenizer):
        if asynchronous:
            return asyncio.run(turn.aread_tokens(tokenizer, Usage(prompt_tokens=7)))
        return turn.read_tokens(tokenizer, Usage(prompt_tokens=7))

    assert read(None) is None
    assert read(Tokenizer()) == "tokens"
    assert asked == [
        (turn.turn.plan, openai_form(turn.prompt([SYSTEM])), {"prompt_tokens": 7, "template_options": None})
    ]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", [ChatMemoryBuffer, Memory])
def test_the_memory_gets_a_turn_whole(kind, asynchronous):
    memory, loop = kind.from_defaults(token_limit=100_000), asyncio.new_event_loop()

    def answered(turn):
        if asynchronous:
            loop.run_until_complete(TurnMemory(memory, turn, HELD).aput(OK))
            return loop.run_until_complete(memory.aget_all())
        TurnMemory(memory, turn, HELD).put(OK)
        return memory.get_all()

    first = turn_of("one", D1)
    assert answered(first) == [first.user, OK]
    second = turn_of("two", D1, stored=[first.user, OK])
    assert answered(second) == [first.user, OK, second.user, OK]
    third = turn_of("three", D1, stored=[second.user, OK])  # the application cut the first
    assert third.rewritten
    assert [question_of(message) for message in answered(third)] == ["two", "ok", "three", "ok"]
    loop.close()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("kind", [ChatMemoryBuffer, Memory])
def test_the_memory_gets_nothing_of_a_turn_that_is_none(kind, rewritten, asynchronous):
    memory, loop, held = kind.from_defaults(token_limit=100_000), asyncio.new_event_loop(), Held((None, 0))
    first = turn_of("one", D1)
    last = turn_of("two", D1, stored=[first.user, OK])
    turn = turn_of("three", D1, stored=[last.user, OK] if rewritten else [first.user, OK])
    assert turn.rewritten is rewritten
    gets = TurnMemory(memory, turn, held)

    def kept(answer):
        if asynchronous:
            loop.run_until_complete(gets.aput(answer))
            return loop.run_until_complete(memory.aget_all())
        gets.put(answer)
        return memory.get_all()

    assert kept(ChatMessage(role="assistant", content=None)) == []
    assert kept(ChatMessage(role="assistant", content=" \n")) == []
    assert kept(ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), TextBlock(text="")])) == []
    held.void()
    assert kept(OK) == []
    loop.close()


def test_nodes_that_name_others_are_blocks_by_their_text():
    item = node(D1, 0.5)
    item.node.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id="other")
    setting = Setting(engine=ReuseEngine(), count=len)
    turn = ChatTurn(setting, "q", Found("q", [item]), [], template=None, room=10_000, scale=1.0, extra_body={})
    assert turn.user.content == f"[Doc 1]\n===\n{D1}\n===\n\nq"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("renderer", [None, lambda block: f"{block.title}: {block.text}"])
def test_metadata_that_cannot_be_copied(talk, way, renderer):
    metadata = uncopyable()
    table = {"q": [node(text, 0.5, metadata=metadata, excluded_llm_metadata_keys=[*metadata]) for text in (D1, D2)]}
    chat = talk(way, table, engine=ReuseEngine(EngineConfig(renderer=renderer)))
    for _ in range(2):
        response, _ = chat("q")
        assert all(item.node.metadata["lock"] is metadata["lock"] for item in response.source_nodes)
    assert all(D1 in prompt and D2 in prompt for prompt in chat.prompts)
    assert stored(chat.history) == chat.history
    metadata["file"].close()
