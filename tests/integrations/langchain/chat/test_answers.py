"""Answers that carry the documents of their labels, and histories that do not."""

import json
from datetime import date

import pytest

from tests.conftest import require

require("langchain_core")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import AIMessage, AIMessageChunk, messages_to_dict  # noqa: E402

from contextpilot_integrations.langchain.chat.answers import LABELLED, carried_by, with_sources  # noqa: E402
from tests.integrations.langchain_chats import HOWS, U, asking, chat_of  # noqa: E402
from tests.integrations.langchain_fakes import document, text_of  # noqa: E402


def test_documents_go_with_an_answer_and_come_back():
    answer = AIMessage("ok", response_metadata={"model": "m"})
    labelled = {1: document("D1"), 7: Document("x", metadata={"page": 3, "tags": ["a"]})}
    carrying = with_sources(answer, labelled)
    assert carried_by(carrying) == labelled
    assert (carrying.content, carrying.response_metadata["model"]) == ("ok", "m")
    assert LABELLED not in answer.response_metadata
    assert carried_by(answer) == {}


def test_without_documents_or_a_message_it_is_the_answer_itself():
    answer = AIMessage("ok")
    assert with_sources(answer, {}) is answer
    assert with_sources("text", {1: document("D1")}) == "text"


def test_an_answer_can_still_be_stored_as_json():
    loop: list[object] = []
    loop.append(loop)
    metadata = {"day": date(2024, 5, 1), "loop": loop, "keys": {(1, 2): 3}, "score": 0.5}
    carrying = with_sources(AIMessage("ok"), {1: Document("x", metadata=metadata)})
    json.dumps(messages_to_dict([carrying]))
    kept = carried_by(carrying)[1].metadata
    assert (kept["day"], kept["score"], kept["keys"]) == ("2024-05-01", 0.5, "{(1, 2): 3}")
    assert set(kept) == set(metadata)


def test_pieces_of_a_stream_add_up_to_one_that_carries_them_once():
    pieces = [with_sources(AIMessageChunk("a"), {1: document("D1")}), AIMessageChunk("b"), AIMessageChunk("c")]
    assert carried_by(pieces[0] + pieces[1] + pieces[2]) == {1: document("D1")}


@pytest.mark.parametrize("how", HOWS)
def test_no_text_stands_in_a_history_a_second_time_because_of_that(how):
    chat, _ = chat_of()
    ask = asking(chat, how)
    ask("D1,D2 what?", U)
    ask("D2,D3 what?", U)
    for message in chat.history("u"):
        if message.type == "ai":
            assert text_of("D1")[:40] not in json.dumps(messages_to_dict([message]))


@pytest.mark.parametrize(
    "carried",
    [5, "text", [1], {"x": {}}, {"1": 5}, {"1": None}, {"1": {"page_content": 5}}, {"1": {"more": 1}}, {None: {}}],
    ids=str,
)
def test_what_others_put_there_is_left_out(carried):
    good = {"2": {"id": None, "page_content": "tea", "metadata": {}}}
    both = {**carried, **good} if isinstance(carried, dict) else carried
    answer = AIMessage("ok", response_metadata={LABELLED: both})
    assert carried_by(answer) == ({2: Document(page_content="tea")} if isinstance(carried, dict) else {})
