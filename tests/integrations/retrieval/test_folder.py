"""Indexes in folders."""

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_core.types import ContextBlock
from contextpilot_integrations import retrieval
from contextpilot_integrations.retrieval.documents import Entry
from contextpilot_integrations.retrieval.folder import load_entries, save_entries
from tests.conftest import require


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "damaged"),
        pytest.param("[" * 100_000, "damaged", id="nested too deeply"),
        ("[]", "damaged"),
        ('{"version": 1, "kind": "bm25", "options": {}, "documents": [{"text": 3}]}', "damaged"),
        ('{"version": 9, "kind": "bm25", "options": {}, "documents": []}', "version 9"),
        ('{"version": 1, "kind": "other", "options": {}, "documents": []}', "'other'"),
    ],
)
def test_damaged_or_foreign_files_are_refused(tmp_path, content, match):
    require("rank_bm25")
    (tmp_path / "documents.json").write_text(content)
    with pytest.raises(RequestError, match=match):
        retrieval.Bm25Index.load(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
CHARACTERS = st.text(st.characters(exclude_categories=()))
BLOCKS = st.builds(
    ContextBlock,
    text=CHARACTERS,
    id=st.none() | st.integers() | CHARACTERS,
    title=st.none() | CHARACTERS,
    metadata=st.none() | st.dictionaries(CHARACTERS, VALUES, max_size=3),
)


@settings(deadline=None)
@given(
    st.lists(st.builds(Entry, block=BLOCKS, node=st.dictionaries(st.text(), VALUES, max_size=2)), max_size=4), VALUES
)
def test_documents_come_back_as_they_were_half_characters_included(entries, value):
    with TemporaryDirectory() as name:
        folder = Path(name, "new", "folder")
        save_entries(folder, entries, kind="bm25", options={"k1": value}, files={})
        assert load_entries(folder, kind="bm25") == (tuple(entries), {"k1": value})
        assert [path.name for path in folder.iterdir()] == ["documents.json"]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (ContextBlock(text="b", metadata={"at": object()}), "not JSON serializable"),
        (ContextBlock(text="b", metadata={"score": math.nan}), "not JSON compliant"),
        (ContextBlock(text="b", id=(object(),)), "not JSON serializable"),
        (
            ContextBlock(text="b", id=("file", 3)),
            "a tuple, or a key that is no text, would come back as something else",
        ),
        (ContextBlock(text="b", metadata={"pages": [{7: "seven"}]}), "a key that is no text"),
    ],
)
def test_what_cannot_be_saved_leaves_the_index_that_was_there(tmp_path, block, why):
    saved = (Entry(block=ContextBlock(text="a")),)
    save_entries(tmp_path, saved, kind="bm25", options={}, files={"other": b"old"})
    with pytest.raises(RequestTypeError, match=rf"documents\[1\] cannot be saved as JSON \(.*{why}"):
        save_entries(tmp_path, (*saved, Entry(block=block)), kind="bm25", options={}, files={"other": b"new"})
    assert load_entries(tmp_path, kind="bm25") == (saved, {})
    assert (tmp_path / "other").read_bytes() == b"old"


def test_an_index_is_replaced_by_the_one_saved_after_it(tmp_path):
    one, two = (tuple(Entry(block=ContextBlock(text=text)) for text in texts) for texts in ("abc", "d"))
    save_entries(tmp_path, one, kind="bm25", options={}, files={})
    save_entries(tmp_path, two, kind="faiss", options={"kind": "exact"}, files={"index.faiss": b"x"})
    assert load_entries(tmp_path, kind="faiss") == (two, {"kind": "exact"})
    with pytest.raises(RequestError, match="is of kind 'faiss', version 1; it must be 'bm25', 1"):
        load_entries(tmp_path, kind="bm25")


def test_a_folder_without_an_index_and_one_that_is_absent_say_so(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RequestError, match=f"{folder} holds no documents.json; save an index there first"):
            load_entries(folder, kind="bm25")
