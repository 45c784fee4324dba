"""What the pages say is what the committed results say."""

import re
from pathlib import Path

import pytest

from benchmarks import scoring, tables
from benchmarks.orders import Sent

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "README.md")


@pytest.fixture(scope="module")
def results():
    return tables.load(ROOT / "benchmarks" / "results")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_table_comes_from_the_committed_results(page, results):
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text, results) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_table_is_known_and_has_rows(page, results):
    text = page.read_text(encoding="utf-8")
    for name, body in re.findall(r"<!-- table (\w+) -->\n(.*?)<!-- end -->", text, re.DOTALL):
        sources, _ = tables.TABLES[name]
        assert all(source in results for source in sources), f"{name}: {sources} is not committed"
        assert body.count("\n") >= 3, f"{name} is empty"


def test_no_other_table_holds_figures():
    outside = re.sub(r"<!-- table \w+ -->\n.*?<!-- end -->", "", PAGES[1].read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"^\| ---", outside, re.MULTILINE)


def test_every_picture_is_there():
    text = PAGES[1].read_text(encoding="utf-8")
    shown = re.findall(r'(?:srcset|src)="([^"]+)"', text)
    assert shown
    assert all((ROOT / "benchmarks" / name).is_file() for name in shown)


def test_the_same_cache_counts_whole_kv_blocks():
    sent = [Sent(0, ("a", "b")), Sent(1, ("a", "c")), Sent(2, ("c", "a"))]
    weights = {"a": 20, "b": 5, "c": 7}
    assert scoring.steps(sent, weights, None) == [(25, 0), (27, 20), (27, 0)]
    assert scoring.steps(sent, weights, None, kv_block=16)[1] == (27, 16)
    assert scoring.share(scoring.steps(sent, weights, None)) == 20 / 79


def test_a_curve_begins_at_nothing_and_ends_at_everything():
    curve = scoring.curve([(10, number % 3) for number in range(100)])
    assert {key: values[0] for key, values in curve.items()} == {"requests": 0, "tokens": 0, "reused": 0}
    assert {key: values[-1] for key, values in curve.items()} == {"requests": 100, "tokens": 1000, "reused": 99}
