"""What the chat engine takes from its LLM: the window, the room for a prompt, and what goes along with requests."""

import pytest

from contextpilot_core import ConfigError
from contextpilot_integrations.serving.chat import Tenants
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import LLMMetadata  # noqa: E402
from llama_index.core.embeddings import MockEmbedding  # noqa: E402
from llama_index.core.memory import (  # noqa: E402
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
    Memory,
    SimpleComposableMemory,
    StaticMemoryBlock,
    VectorMemory,
)

from contextpilot_integrations.llama_index import ContextPilotChatEngine  # noqa: E402
from contextpilot_integrations.llama_index.chat.llm import extra_body, salted, window_and_room  # noqa: E402
from tests.integrations.llama_index_chats import WAYS  # noqa: E402
from tests.integrations.llama_index_fakes import Recorder, TableRetriever  # noqa: E402

TENANTS = Tenants("a key of sixteen bytes")


class Served(Recorder):
    """As the LLMs of OpenAI-compatible servers: with options of every request."""

    additional_kwargs: dict = {}
    answers: int = 0

    @property
    def metadata(self):
        return LLMMetadata(context_window=self.window, num_output=self.answers, is_chat_model=True)


# --- the window ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "window", "answers", "limit", "expected"),
    [
        (None, 1_000, 0, None, (1_000, 744)),  # 256 for the answer, where nobody says more
        (None, 1_000, 300, None, (1_000, 700)),
        (None, 1_000, 8_000, None, (1_000, 500)),  # never more than half
        (600, 1_000, 0, None, (600, 600)),
        (600, 1_000, 100, None, (600, 500)),
        (None, 1_000, 0, 400, (400, 400)),  # the memory's limit holds, too
        (600, 1_000, 0, 5_000, (600, 600)),
        (1, 1_000, 500, None, (1, 1)),
    ],
)
def test_a_prompt_leaves_room_for_the_answer(given, window, answers, limit, expected):
    memory = None if limit is None else ChatMemoryBuffer.from_defaults(token_limit=limit)
    assert window_and_room(given, Served(window=window, answers=answers), memory) == expected


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "many"])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(ConfigError, match="max_context_tokens"):
        ContextPilotChatEngine(TableRetriever(), llm=Recorder(), max_context_tokens=limit)
    with pytest.raises(ConfigError, match="give None for that of the LLM"):
        window_and_room(limit, Recorder(), None)


def plain(token_limit=5_000):
    return ChatMemoryBuffer.from_defaults(token_limit=token_limit)


def blocks():
    block = StaticMemoryBlock(static_content="She likes tea.", name="facts")
    return Memory.from_defaults(token_limit=1000, memory_blocks=[block])


def summary(llm):
    return ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=5_000)


def composed(primary, *secondary):
    return SimpleComposableMemory.from_defaults(primary_memory=primary, secondary_memory_sources=list(secondary))


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (blocks, "a Memory that has memory_blocks"),
        (lambda: summary(Recorder()), "a ChatSummaryMemoryBuffer that summarises"),
        (lambda: composed(plain(), plain()), "a SimpleComposableMemory that has secondary_memory_sources"),
        (lambda: composed(summary(Recorder())), "a ChatSummaryMemoryBuffer that summarises"),
        (lambda: VectorMemory.from_defaults(embed_model=MockEmbedding(4)), "a VectorMemory that shows some"),
    ],
)
def test_a_memory_that_does_more_than_keep_messages_is_refused(memory, said):
    with pytest.raises(ConfigError, match=said):
        ContextPilotChatEngine(TableRetriever(), llm=Recorder(), memory=memory())


@pytest.mark.parametrize("memory", [plain, lambda: summary(None), lambda: composed(plain()), lambda: None])
@pytest.mark.parametrize("way", WAYS)
def test_other_memories_keep_what_was_sent(talk, memory, way):
    chat = talk(way, memory=memory())
    chat("qA one")
    chat("qB two")
    assert chat.prompts[1].startswith(chat.prompts[0])
    assert len(chat.history) == 4


# --- options of requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"extra_body": None}, {"extra_body": {}}, {"temperature": 0}])
def test_no_extra_body_is_an_empty_one(options):
    assert extra_body(Served(additional_kwargs=options)) == {}
    assert extra_body(Recorder()) == {}


def test_a_salted_llm_is_a_copy():
    llm = Served(additional_kwargs={"cache_salt": "guessed", "extra_body": {"top_k": 1, "cache_salt": "x"}, "seed": 1})
    copy = salted(llm, TENANTS, "n")
    salt = TENANTS.cache_salt("n")
    assert copy.additional_kwargs == {"seed": 1, "extra_body": {"top_k": 1, "cache_salt": salt}}
    assert extra_body(copy)["cache_salt"] == salt
    assert llm.additional_kwargs["cache_salt"] == "guessed"


def test_an_llm_that_cannot_keep_tenants_apart_is_refused():
    with pytest.raises(ConfigError, match="llm is a Recorder, whose requests have no additional_kwargs"):
        ContextPilotChatEngine(TableRetriever(), llm=Recorder(), tenants=TENANTS)
