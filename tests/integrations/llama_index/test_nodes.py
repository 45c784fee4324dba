"""LlamaIndex nodes in and out of a plan: what tells them apart, and what copies of them keep."""

import asyncio
import copy
import threading

import pytest

from contextpilot_core import EngineConfig, ReuseEngine
from contextpilot_integrations.reorder.arrange import Arrangement
from contextpilot_integrations.reorder.ranks import PLACE, RANK, SOURCES
from tests.conftest import require

require("llama_index.core")

from llama_index.core import Document  # noqa: E402
from llama_index.core.schema import (  # noqa: E402
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from contextpilot_integrations.llama_index import ContextPilotPostprocessor  # noqa: E402
from contextpilot_integrations.llama_index.nodes import (  # noqa: E402
    arranged,
    context_blocks,
    identity_block,
    llm_text,
)
from tests.integrations.llama_index_fakes import D1, D2, D3, TABLE, Recorder, node, texts, uncopyable  # noqa: E402
from tests.integrations.llama_index_hooks import nodes, query_engine, warm  # noqa: E402


def test_what_the_model_and_the_embedding_see_is_the_text_alone():
    table = [node(text, 0.5, metadata={"file_path": f"/docs/{n}.md"}) for n, text in enumerate(TABLE["qB"])]
    hook = ContextPilotPostprocessor()
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        seen = [item.node.get_content(mode) for item in hook.postprocess_nodes(table)]
        assert seen == [item.node.get_content(mode) for item in table]


def test_nodes_without_text_and_nodes_with_media_are_known_by_their_id():
    pictures = [NodeWithScore(node=ImageNode(image_url=f"http://x/{n}.png"), score=0.5) for n in range(2)]
    movie = [
        NodeWithScore(node=Node(text_resource=MediaResource(text=D1), video_resource=MediaResource(data=bytes([n]))))
        for n in range(2)
    ]
    hook = ContextPilotPostprocessor()
    given = [*pictures, *movie, node("", 0.1), node("", 0.1)]
    assert len(hook.postprocess_nodes(given)) == 6
    moved = hook.postprocess_nodes([node(D2, 0.9), *reversed(movie), *reversed(pictures)])
    assert len(moved) == 5
    assert len(hook.postprocess_nodes([pictures[0], pictures[0]])) == 1


@pytest.mark.parametrize("scores", [(0.9, None), (None, 0.9)])
def test_s4_an_unscored_copy_takes_no_score_away(scores):
    given = [node(D1, scores[0]), node(D1, scores[1]), node(D2, 0.8)]
    found = ContextPilotPostprocessor().postprocess_nodes(given)
    assert [(item.node.get_content(), item.score) for item in found] == [(D1, 0.9), (D2, 0.8)]


def test_s5_ids_play_no_part():
    hook = ContextPilotPostprocessor()
    assert texts(hook.postprocess_nodes(nodes(D1, D2))) == [D1, D2]
    assert texts(hook.postprocess_nodes(nodes(D3, D2, D1)))[:2] == [D1, D2]


def test_s6_of_equal_texts_all_sources_are_named():
    given = [
        node(D1, metadata={"source": source}, excluded_llm_metadata_keys=["source"], id_=source)
        for source in ("a", "b")
    ]
    hook = ContextPilotPostprocessor()
    (found,) = hook.postprocess_nodes(given)
    expected = [{"id": "a", "metadata": {"source": "a"}}, {"id": "b", "metadata": {"source": "b"}}]
    assert found.node.metadata == {"source": "a", RANK: 0, PLACE: 0, SOURCES: expected}
    assert found.node.get_content(MetadataMode.LLM) == D1
    (again,) = hook.postprocess_nodes([found])
    assert again.node.metadata[SOURCES] == expected
    (again,) = hook.postprocess_nodes([found, node(D1, id_="c")])
    assert [source["id"] for source in again.node.metadata[SOURCES]] == ["a", "b", "c"]
    off = ContextPilotPostprocessor(engine=ReuseEngine(EngineConfig(dedup=False)))
    assert [item.node.node_id for item in off.postprocess_nodes(given)] == ["a", "b"]


def test_a_printed_source_is_part_of_the_text():
    given = [node(D1, metadata={"source": source}) for source in ("a", "b")]
    assert len(ContextPilotPostprocessor().postprocess_nodes(given)) == 2


def test_a_node_is_known_by_the_text_that_a_model_sees():
    shown = node(D1, metadata={"title": "One", "page": 3}, excluded_llm_metadata_keys=["page"])
    block = identity_block(shown)
    assert block.text == llm_text(shown) == f"title: One\n\n{D1}"
    assert (block.id, block.title, dict(block.metadata)) == (shown.node.node_id, "One", {"title": "One", "page": 3})
    assert identity_block(node(D1, metadata={"file_name": "one.md"})).title == "one.md"
    assert identity_block(node(D1, metadata={"title": 7})).title is None


@pytest.mark.parametrize("text", ["", " \n", D1])
def test_where_more_or_less_than_text_is_shown_the_id_tells_nodes_apart(text):
    movie = MediaResource(data=b"x")
    made = [Node(id_=name, text_resource=MediaResource(text=text), video_resource=movie) for name in "ab"]
    one, other = (identity_block(NodeWithScore(node=each)).text for each in made)
    assert (one, other) == (f"{text}\na", f"{text}\nb")
    assert identity_block(node(text, id_="c")).text == (text if text.strip() else f"{text}\nc")


def test_blocks_for_a_prompt_are_the_texts_best_first_and_nothing_empty():
    given = nodes(D1, " \n", D2)
    assert [block.text for block in context_blocks(given)] == [D1, D2]
    assert [block.id for block in context_blocks(given)] == [given[0].node.node_id, given[2].node.node_id]
    moved = warm().postprocess_nodes(nodes(*TABLE["qB"]))
    assert texts(moved) != TABLE["qB"]
    assert [block.text for block in context_blocks(moved)] == TABLE["qB"], "best first"


def test_an_arrangement_becomes_copies_with_their_ranks():
    given = nodes(D1, D2, D1, D3)
    before = copy.deepcopy(given)
    found = arranged(given, Arrangement(order=(3, 0, 1), ranks=(2, 0, 1), repeats={0: (2,)}))
    assert texts(found) == [D3, D1, D2]
    assert [item.node.metadata[RANK] for item in found] == [2, 0, 1]
    assert [item.node.metadata[PLACE] for item in found] == [0, 1, 2]
    assert [item.score for item in found] == [given[3].score, given[0].score, given[1].score]
    assert [source["id"] for source in found[1].node.metadata[SOURCES]] == [given[p].node.node_id for p in (0, 2)]
    assert SOURCES not in found[0].node.metadata
    assert [item.node.node_id for item in found] == [given[p].node.node_id for p in (3, 0, 1)]
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert [item.node.get_content(mode) for item in found] == [D3, D1, D2]
    assert given == before
    assert arranged(given, Arrangement()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda **fields: TextNode(text=D1, **fields),
        lambda **fields: IndexNode(text=D1, index_id="i", obj=threading.Lock(), **fields),
        lambda **fields: ImageNode(text=D1, image="aGVsbG8=", **fields),
        lambda **fields: Node(text_resource=MediaResource(text=D1), **fields),
        lambda **fields: Document(text=D1, **fields),
    ],
    ids=["text", "index", "image", "node", "document"],
)
def test_only_what_changes_is_copied(make):
    metadata = uncopyable()
    hidden = ["lock", "pages", "file"]
    given = NodeWithScore(
        node=make(
            metadata=metadata, excluded_llm_metadata_keys=hidden, excluded_embed_metadata_keys=hidden, embedding=[0.5]
        ),
        score=0.5,
    )
    related = RelatedNodeInfo(node_id="next")
    given.node.relationships[NodeRelationship.NEXT] = related
    seen = {
        name: copy.copy(value) if isinstance(value, dict | list) else value for name, value in vars(given.node).items()
    }
    (found,) = ContextPilotPostprocessor().postprocess_nodes([given])
    assert type(found.node) is type(given.node)
    assert found.node is not given.node
    assert found.node.embedding is given.node.embedding
    assert found.node.get_content(MetadataMode.LLM) == f"shown: word\n\n{D1}"
    assert found.node.metadata == {**metadata, RANK: 0, PLACE: 0}
    (again,) = ContextPilotPostprocessor().postprocess_nodes([found, given])
    assert [source["metadata"]["lock"] for source in again.node.metadata[SOURCES]] == [metadata["lock"]] * 2
    found.node.metadata["mine"] = found.node.relationships[NodeRelationship.PREVIOUS] = related
    assert vars(given.node) == seen
    metadata["file"].close()


@pytest.mark.parametrize("way", ["query", "aquery", "streamed", "astreamed"])
def test_metadata_that_cannot_be_copied_goes_through_a_query_engine(way):
    metadata = uncopyable()
    table = {
        key: [node(text, 0.5, metadata=metadata, excluded_llm_metadata_keys=[*metadata]) for text in found]
        for key, found in TABLE.items()
    }
    llm = Recorder()
    engine = query_engine(ContextPilotPostprocessor(), llm, table, streaming="stream" in way)
    for question in ("qA", "qB"):
        answer = asyncio.run(engine.aquery(question)) if way.startswith("a") else engine.query(question)
        assert all(item.node.metadata["lock"] is metadata["lock"] for item in answer.source_nodes)
    metadata["file"].close()
