"""What the pieces of an answer add up to: their text, and a usage that is not counted twice."""

import pytest

from tests.conftest import require

require("langchain_core")
require("langchain_openai")

from langchain_core.messages import AIMessage, AIMessageChunk  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

from contextpilot_integrations.langchain import create_contextpilot_chat  # noqa: E402
from contextpilot_integrations.langchain.chat.pieces import Pieces  # noqa: E402
from tests.integrations.chat_server import chat_server, reporting  # noqa: E402
from tests.integrations.langchain_chats import U, asking  # noqa: E402
from tests.integrations.langchain_fakes import Lists  # noqa: E402


def usage(prompt, answer, **details):
    return {"input_tokens": prompt, "output_tokens": answer, "total_tokens": prompt + answer, **details}


def cached(tokens):
    return {"input_token_details": {"cache_read": tokens}}


def added_up(*usages):
    pieces = Pieces()
    for number, each in enumerate(usages):
        pieces.add(AIMessageChunk(f"{number} ", usage_metadata=each, id="a"))
    return pieces.message


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([None, None], None),
        ([None, usage(100, 3, **cached(64))], usage(100, 3, **cached(64))),
        ([usage(100, 1), usage(100, 2), usage(100, 3)], usage(100, 3)),  # how far it is, with every piece
        ([usage(100, 1, **cached(64)), usage(100, 2), None], usage(100, 2, **cached(64))),
        ([usage(100, 1, **cached(64)), None, usage(100, 9, **cached(96))], usage(100, 9, **cached(96))),
        ([usage(100, 1), usage(0, 2), usage(0, 3)], usage(100, 6)),  # what is new, with every piece
        ([usage(100, 0, **cached(64)), usage(0, 7)], usage(100, 7, **cached(64))),
        ([usage(100, 1), usage(100, 2, **cached(64)), usage(0, 0, **cached(0))], usage(100, 2, **cached(64))),
    ],
)
def test_the_usage_is_that_of_the_whole_answer(usages, expected):
    message = added_up(*usages)
    assert type(message) is AIMessage
    assert message.content == "".join(f"{number} " for number in range(len(usages)))
    found = message.usage_metadata
    if expected is None:
        assert found is None
    else:
        assert {**found} == expected


def test_nothing_adds_up_to_nothing_and_one_message_to_itself():
    assert (Pieces().message, Pieces().is_empty) == (None, True)
    pieces, whole = Pieces(), AIMessage("so", usage_metadata=usage(100, 1))
    pieces.add(whole)  # a model that cannot stream
    assert (pieces.message, pieces.is_empty) == (whole, False)


def test_what_is_no_message_is_left_to_whoever_refuses_it():
    pieces = Pieces()
    pieces.add("a")
    pieces.add("b")
    assert pieces.message == "ab"


def test_pieces_are_not_changed():
    first, last = (AIMessageChunk("so", usage_metadata=usage(100, n)) for n in (1, 2))
    pieces = Pieces()
    pieces.add(first)
    pieces.add(last)
    pieces.message.usage_metadata["input_tokens"] = 5
    assert (first.usage_metadata, last.usage_metadata) == (usage(100, 1), usage(100, 2))


@pytest.mark.parametrize("how", ["stream", "astream"])
def test_a_server_that_reports_with_every_piece_is_counted_once(how):
    """Its window fills as fast as with one report at the end, and the figures are those of the answer."""
    with chat_server() as server:
        used = {"prompt_tokens": 200, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 150}}
        server.script = [reporting(*[{**used, "total_tokens": 200 + n, "completion_tokens": n} for n in range(1, 4)])]
        llm = ChatOpenAI(base_url=server.base_url, model="m", api_key="-", stream_usage=True, max_retries=0)
        chat = create_contextpilot_chat(Lists(), llm, max_context_tokens=900)
        for turn in range(4):
            assert asking(chat, how)(f"D{turn + 1} what?", U) == "so so so "
        messages = chat.history("u")
        assert len(messages) == 8
        assert [message.usage_metadata["input_tokens"] for message in messages[1::2]] == [200] * 4
        assert messages[1].usage_metadata["output_tokens"] == 3
        stats = chat.engine.stats()
        assert (stats.compared, stats.prompt_tokens, stats.reported_tokens) == (4, 800, 600)
