"""Which tool results show documents, in which order they are read, and why one is left as it is."""

import pytest

from tests.conftest import require

require("langchain_core")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402

from contextpilot_integrations.langchain.agent.results import documents_of, retrieved, why_left  # noqa: E402
from contextpilot_integrations.reorder.ranks import PLACE, RANK  # noqa: E402
from tests.integrations.langchain.agent.results import result  # noqa: E402
from tests.integrations.langchain_fakes import document, text_of  # noqa: E402


def test_documents_that_a_hook_of_ours_arranged_come_best_first_with_what_belongs_to_them():
    ranks = {"D1": 2, "D2": 0, "D3": 1}
    arranged = [document(name, **{RANK: ranks[name], PLACE: place}) for place, name in enumerate(ranks)]
    content = "\n\n".join(f"{each.metadata['source']}: {each.page_content}" for each in arranged)
    found = retrieved(result(*arranged, content=content))
    assert [part.whole for _, part in found.shown] == [f"{name}.md: {text_of(name)}" for name in ("D2", "D3", "D1")]
    assert [part.position for _, part in found.shown] == [1, 2, 0]
    assert found.around == ("", "\n\n", "\n\n", "")


def test_a_tuple_of_documents_counts_as_a_list_does():
    message = result("D1", "D2").model_copy(update={"artifact": (document("D1"), document("D2"))})
    assert [each.id for each in documents_of(message)] == ["id-D1", "id-D2"]


def test_documents_from_a_checkpoint_keep_id_text_and_metadata():
    dicts = [{"id": "id-D1", "page_content": text_of("D1"), "metadata": {"source": "D1.md"}}]
    assert documents_of(ToolMessage(text_of("D1"), tool_call_id="c", artifact=dicts)) == [document("D1")]


@pytest.mark.parametrize(
    "entry",
    [
        {"metadata": {}},
        {"page_content": text_of("D1")},
        {"page_content": None, "metadata": {}},
        {"page_content": text_of("D1"), "metadata": "none"},
        text_of("D1"),
    ],
    ids=["no text", "no metadata", "text is None", "metadata is a str", "a str"],
)
def test_one_entry_that_is_no_document_makes_it_no_result(entry):
    shown = f"{text_of('D1')}\n\n{text_of('D2')}"
    assert documents_of(ToolMessage(shown, tool_call_id="c", artifact=[document("D2"), entry])) == []


@pytest.mark.parametrize("kind", [HumanMessage, AIMessage])
def test_only_tools_have_results(kind):
    message = kind(text_of("D1")).model_copy(update={"artifact": [document("D1")]})
    assert (documents_of(message), retrieved(message), why_left(message, retriever=True)) == ([], None, None)


@pytest.mark.parametrize(
    "content",
    ["A summary of D1.", text_of("D1"), [text_of("D1"), text_of("D2")], [{"type": "image_url", "image_url": {}}], []],
    ids=["a summary", "one less", "a part for each", "no text", "empty"],
)
def test_what_does_not_show_every_text_in_one_text_is_left_and_the_reason_is_told(content):
    message = result("D1", "D2", content=content, name="search")
    assert retrieved(message) is None
    assert why_left(message).startswith(
        "results of the tool 'search' stay as they are, and are not de-duplicated: the te"
    )


def test_results_without_documents_are_left_without_a_word():
    assert why_left(result("D1")) is None
    assert why_left(ToolMessage("3", tool_call_id="c")) is None
    assert why_left(ToolMessage("none found", tool_call_id="c", artifact=[]), retriever=True) is None
    assert why_left(ToolMessage("two", tool_call_id="c", artifact={"rows": 2})) is None
    reason = why_left(ToolMessage(text_of("D1"), tool_call_id="c", name="find"), retriever=True)
    assert reason.startswith(
        "results of the tool 'find' stay as they are, and are not de-duplicated: they bring no doc"
    )
    assert text_of("D1")[:20] not in reason


@pytest.mark.parametrize("name", [[1], {"a": 1}, b"\xff"])
def test_an_artifact_whose_ids_are_no_texts_holds_no_documents(name):
    entry = {"page_content": "tea", "metadata": {}, "id": name}
    assert documents_of(ToolMessage("tea", tool_call_id="1", artifact=[entry])) == []
