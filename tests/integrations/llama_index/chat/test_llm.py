"""What the chat engine takes from its LLM: the window, the room for a prompt, and what goes along with requests."""

import pytest

from contextpilot_core import ConfigError
from contextpilot_integrations.serving.chat import Tenants
from tests.conftest import require

require("llama_index.core")

from llama_index.core.base.llms.types import LLMMetadata  # noqa: E402
from llama_index.core.memory import ChatMemoryBuffer, Memory, StaticMemoryBlock  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotChatEngine  # noqa: E402
from contextpilot_integrations.llama_index.chat.llm import extra_body, salted, window_and_room  # noqa: E402
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


def test_memory_blocks_are_refused_in_words():
    memory = Memory.from_defaults(
        token_limit=1000, memory_blocks=[StaticMemoryBlock(static_content="She likes tea.", name="facts")]
    )
    with pytest.raises(ConfigError, match="memory_blocks"):
        ContextPilotChatEngine(TableRetriever(), llm=Recorder(), memory=memory)


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
