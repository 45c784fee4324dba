"""What the labels of an agent's answer stand for: places in its messages, whatever keeps them."""

import json

import pytest

from contextpilot_core import EngineConfig
from contextpilot_core.tokens import estimate_tokens
from tests.conftest import require

require("langchain_core")
require("langchain")

from langchain.agents.middleware import ModelResponse  # noqa: E402
from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_from_dict, messages_to_dict  # noqa: E402

from contextpilot_integrations.langchain.agent.cited import (  # noqa: E402
    documents_at,
    labelled_documents,
    with_places,
)
from contextpilot_integrations.langchain.agent.rendering import PLACES, ResultRenderer  # noqa: E402
from contextpilot_integrations.reorder.ranks import SOURCES  # noqa: E402
from tests.integrations.langchain.agent.results import result  # noqa: E402
from tests.integrations.langchain_fakes import document  # noqa: E402

MESSAGES = [
    HumanMessage("q"),
    result("D1", "D2", call="a"),
    result("D2", document("D1", source="copy.md"), "D3", call="b", id="m-b"),
]


def rendering(messages=MESSAGES):
    return ResultRenderer(EngineConfig(), estimate_tokens)(messages)


def noted(messages=MESSAGES, answer=None):
    (answer,) = with_places(ModelResponse(result=[answer or AIMessage("ok")]), rendering(messages)).result
    return answer.response_metadata.get(PLACES)


def test_labels_stand_for_documents_with_all_their_sources():
    found = labelled_documents(rendering())
    assert {label: each.id for label, each in found.items()} == {1: "id-D1", 2: "id-D2", 3: "id-D3"}
    assert found[2] == document("D2")
    assert found[1].metadata["source"] == "D1.md"
    assert [each["metadata"]["source"] for each in found[1].metadata[SOURCES]] == ["D1.md", "copy.md"]


def test_an_answer_carries_places_and_no_text():
    places = noted()
    assert places == {"1": [["a", 0], ["m-b", 1]], "2": [["a", 1], ["m-b", 0]], "3": [["m-b", 2]]}
    assert documents_at(places, MESSAGES) == labelled_documents(rendering())
    kept = messages_from_dict(json.loads(json.dumps(messages_to_dict(MESSAGES))))
    assert documents_at(json.loads(json.dumps(places)), kept) == labelled_documents(rendering())


def test_only_answers_are_noted_and_only_where_there_are_labels():
    call = {"name": "search", "args": {}, "id": "1", "type": "tool_call"}
    assert noted(answer=AIMessage("", tool_calls=[call])) is None
    response = ModelResponse(result=[AIMessage("ok")])
    assert with_places(response, rendering([HumanMessage("q")])) is response
    assert with_places(None, rendering()) is None
    answer = AIMessage("ok", response_metadata={"model": "m"})
    assert with_places(ModelResponse(result=[answer]), rendering()).result[0].response_metadata["model"] == "m"
    assert PLACES not in answer.response_metadata


def test_what_is_not_there_is_left_out_and_nothing_is_guessed():
    places = noted()
    assert set(documents_at(places, MESSAGES[:2])) == {1, 2}
    assert set(documents_at(places, [*MESSAGES, result("D9", call="a")])) == {1, 2, 3}
    assert documents_at(places, [*MESSAGES, result("D9", call="a")])[1].metadata["source"] == "copy.md"
    assert documents_at(places, [MESSAGES[1].model_copy(update={"artifact": None})]) == {}
    assert documents_at({"1": [["a", 7]]}, MESSAGES) == {}
    assert documents_at(None, MESSAGES) == {}
    assert isinstance(MESSAGES[1], ToolMessage)


@pytest.mark.parametrize(
    "places", [5, "x", [1], {"x": [["a", 0]]}, {"1": 5}, {"1": [5]}, {"1": [["a"]]}, {"1": [["a", "0"]]}]
)
def test_places_that_others_wrote_are_left_out(places):
    message = ToolMessage("tea", tool_call_id="1", id="a", artifact=[Document(page_content="tea")])
    assert documents_at(places, [message]) == {}
