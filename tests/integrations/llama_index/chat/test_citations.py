"""From a label in an answer to the node, over all turns that the prompt shows."""

import pytest

from contextpilot_core import EngineConfig, ReuseEngine, citations
from tests.conftest import require

require("llama_index.core")

from llama_index.core.schema import ImageNode, NodeWithScore  # noqa: E402

from contextpilot_integrations.llama_index import ContextPilotChatEngine, ContextPilotPostprocessor  # noqa: E402
from tests.integrations.llama_index_chats import WAYS, shown, stored  # noqa: E402
from tests.integrations.llama_index_fakes import (  # noqa: E402
    D1,
    D2,
    D3,
    D4,
    D5,
    TABLE,
    Recorder,
    TableRetriever,
    document,
    node,
    uncopyable,
)

PAGES = {text: f"p{number}" for number, text in enumerate((D1, D2, D3, D4, D5), 1)}


def paged(query, rank, text):
    """A node that is the same in every search, but for its score."""
    return node(
        text, 0.9 - rank / 10, id_=PAGES[text], metadata={"page": PAGES[text]}, excluded_llm_metadata_keys=["page"]
    )


def chat_over(talk, way="chat", **options):
    chat = talk(way, **options)
    chat.retriever._make = paged
    return chat


def ids(nodes_by_label):
    return {label: [item.node.node_id for item in nodes] for label, nodes in nodes_by_label.items()}


@pytest.mark.parametrize("way", WAYS)
def test_every_label_that_the_prompt_shows_leads_to_its_node(talk, way):
    chat = chat_over(talk, way, llm=Recorder(lambda messages: "Tea [Doc 1, 5], salt [Doc 2] and [Doc 9]."))
    for question in ("qA one", "qB two", "nothing three", "qA four"):
        response, answer = chat(question)
        bodies, _ = shown(chat.llm.messages[-1])
        assert {
            label: (nodes[0].node.text, nodes[0].node.metadata["page"])
            for label, nodes in response.nodes_by_label.items()
        } == {label: (text, PAGES[text]) for label, text in bodies.items()}
        assert all(len(nodes) == 1 for nodes in response.nodes_by_label.values())
    found = citations(answer, response.nodes_by_label)
    assert {label: nodes[0].node.metadata["page"] for label, nodes in found.sources.items()} == {
        1: "p1",
        5: "p5",
        2: "p2",
    }
    assert found.unknown == (9,)


def test_the_nodes_of_a_stream_are_there_before_its_first_token():
    import threading

    gate = threading.Event()
    chats = ContextPilotChatEngine.from_defaults(
        TableRetriever(make=paged), llm=Recorder(lambda _: gate.wait(20) and "ok")
    )
    response = chats.stream_chat("qA")
    assert ids(response.nodes_by_label) == {1: ["p1"], 2: ["p2"], 3: ["p3"], 4: ["p4"]}
    assert [item.node.node_id for item in response.source_nodes] == ["p1", "p2", "p3", "p4"]
    gate.set()
    assert "".join(response.response_gen) == "ok"


def test_the_very_nodes_of_this_process_come_back(talk):
    given = [
        node(text, 0.5, id_=text[:2], metadata=uncopyable(), excluded_llm_metadata_keys=["lock", "pages", "file"])
        for text in (D1, D2)
    ]
    chat = talk(table={"q": given, "r": []})
    chat("q")
    response, _ = chat("r")
    assert [nodes[0] for nodes in response.nodes_by_label.values()] == given
    assert all(nodes[0] is item for nodes, item in zip(response.nodes_by_label.values(), given, strict=True))


@pytest.mark.parametrize("hooked", [False, True])
def test_nodes_with_the_same_text_are_all_in_the_source(talk, hooked):
    alike = [
        node(D1, 0.5, id_=name, metadata={"file": f"{name}.pdf"}, excluded_llm_metadata_keys=["file"]) for name in "abc"
    ]
    hooks = [ContextPilotPostprocessor()] if hooked else []
    chat = talk(table={"q": [alike[0], node(D2, 0.4, id_="d"), alike[1]], "r": [alike[2]]}, node_postprocessors=hooks)
    chat("q")
    response, _ = chat("r")
    assert ids(response.nodes_by_label) == {1: ["a", "b", "c"], 2: ["d"]}
    assert [item.node.metadata["file"] for item in response.nodes_by_label[1]] == ["a.pdf", "b.pdf", "c.pdf"]
    assert chat.prompts[-1].count(D1) == 1


def test_a_hook_before_makes_no_second_node_of_one(talk):
    chat = chat_over(talk, node_postprocessors=[ContextPilotPostprocessor()])
    for question in ("qA", "qB", "qA"):
        response, _ = chat(question)
    assert ids(response.nodes_by_label) == {1: ["p1"], 2: ["p2"], 3: ["p3"], 4: ["p4"], 5: ["p5"]}


def test_turns_that_left_the_window_stand_for_nothing(talk):
    table = {f"q{n}": [node(document(f"F{n}", 900), 0.5, id_=f"f{n}")] for n in range(6)}
    chat = talk(table=table, max_context_tokens=2_000)
    for n in range(6):
        response, _ = chat(f"q{n}")
        bodies, _ = shown(chat.llm.messages[-1])
        assert ids(response.nodes_by_label) == {label: [text[:2].lower()] for label, text in bodies.items()}
    assert len(response.nodes_by_label) < 6


def test_pictures_and_nodes_without_text_have_no_label_and_are_not_lost(talk):
    picture = NodeWithScore(node=ImageNode(image_url="http://x/1.png"), score=0.9)
    captioned = NodeWithScore(node=ImageNode(text=D2, image_url="http://x/2.png"), score=0.8)
    empty = node("", 0.7, metadata={"page": 1}, excluded_llm_metadata_keys=["page"])
    given = [picture, captioned, empty, node(D1, 0.6)]
    chat = talk(table={"q": given}, node_postprocessors=[ContextPilotPostprocessor()])
    response, _ = chat("q")
    in_order = [captioned, given[3], picture, empty]  # as in the prompt, and then what it does not hold
    assert [item.node.node_id for item in response.source_nodes] == [item.node.node_id for item in in_order]
    assert ids(response.nodes_by_label) == {1: [captioned.node.node_id], 2: [given[3].node.node_id]}
    assert isinstance(response.nodes_by_label[1][0].node, ImageNode)
    assert response.source_nodes[2].node.text == ""


@pytest.mark.parametrize("renderer", [None, lambda block: f"{block.title or ''}{block.text}"])
@pytest.mark.parametrize("way", WAYS)
def test_after_a_restart_ids_and_metadata_are_known(talk, way, renderer):
    config = EngineConfig(renderer=renderer)
    merged = [node(D5, 0.1, id_=name, metadata={"page": name}, excluded_llm_metadata_keys=["page"]) for name in "xy"]
    first = chat_over(
        talk,
        way,
        engine=ReuseEngine(config),
        table={**TABLE, "qM": merged},
        node_postprocessors=[ContextPilotPostprocessor()],
    )
    first("qA one")
    first("qM two")
    again = chat_over(
        talk, way, engine=ReuseEngine(config), table={"qB": TABLE["qB"]}, chat_history=stored(first.history)
    )
    for question in ("nothing three", "qB four", "nothing five"):
        response, _ = again(question)
        found = ids(response.nodes_by_label)
        assert {label: found[label][0] for label in found} == {1: "p1", 2: "p2", 3: "p3", 4: "p4", 5: "x"}
        assert found[5][:2] == ["x", "y"]
        for nodes in response.nodes_by_label.values():
            assert all(item.node.metadata["page"] == item.node.node_id for item in nodes)
            assert nodes[0].node.get_content("llm") == nodes[0].node.text
    assert "See [Doc 5] above." in again.prompts[1]
