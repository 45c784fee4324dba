"""The frameworks' own pipelines, with us no worse than without us in anything, on the prompts that a model received."""

import pytest

from tests.conftest import require

require("langchain_classic")
require("langchain.agents")
require("llama_index.core")

from tests.swap_ins.measure import Row, table  # noqa: E402
from tests.swap_ins.page import PAGE, table_of  # noqa: E402
from tests.swap_ins.rows import rows  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
BETTER = {"none": 0, "WRONG": -1, "place": 1, "label": 2}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_nothing_is_worse_than_without_us(row: Row) -> None:
    assert row.lines <= 2
    assert row.documents, "a document is missing, or a hint names what its prompt does not show"
    assert row.metadata, "something that the pipeline told of a document, or gave back, is gone or changed"
    before, after = (BETTER[each] for each in row.citations)
    assert after >= max(before, 0)
    assert row.note in ("no note", "right")
    plain, ours = row.shared
    assert ours >= plain


def test_most_pipelines_share_much_more() -> None:
    assert sum(ours > plain + 0.25 for plain, ours in (row.shared for row in rows())) > len(rows()) / 2


def test_the_page_says_what_was_measured() -> None:
    assert table_of(PAGE.read_text(encoding="utf-8")) == table(rows()), "python -m tests.swap_ins writes it anew"
