"""The report as a page: complete, escaped, and nothing loaded from elsewhere."""

import json
import re
import stat
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.demo.page.html import check_folder, report_html, write_report
from contextpilot_integrations.demo.results import Arm, Run


def test_report_files(run: Run, tmp_path: Path) -> None:
    paths = write_report(run, tmp_path / "new" / "folder")
    assert json.loads(paths[0].read_text("utf-8")) == json.loads(json.dumps(run.figures()))
    assert paths[1].read_text("utf-8") == report_html(run)


def test_the_report_is_for_its_owner_alone(run: Run, tmp_path: Path) -> None:
    paths = write_report(run, tmp_path / "new")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (*paths, tmp_path / "new")] == [0o600, 0o600, 0o700]


@pytest.mark.parametrize("name", ["file", "file/below", "report.json", "report.html", "x" * 300])
def test_a_folder_that_cannot_be_written_is_named_before_and_after(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "taken" if name.startswith("report") else tmp_path / name
    if name.startswith("report"):
        (out / name).mkdir(parents=True)
    for write in (check_folder, lambda folder: write_report(run, folder)):
        with pytest.raises(ConfigError, match="--out .* cannot be written .*; name another folder for the report"):
            write(out)


def test_a_folder_that_can_be_written_is_left_empty(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_half_a_character_of_an_answer_is_written_all_the_same(run: Run, tmp_path: Path) -> None:
    arm = run.batch[0]
    broken = replace(arm, sent=(replace(arm.sent[0], text="\ud83d!"), *arm.sent[1:]))
    figures, page = write_report(replace(run, batch=(broken, *run.batch[1:])), tmp_path)
    assert "\ud83d!" in json.loads(figures.read_text("utf-8"))["batch"]["plain"]["answers"]
    assert "?!" in page.read_text("utf-8")


class Page(HTMLParser):
    """Collects what a browser would load or run, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open[-1:] == [tag]:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect",):
            assert self.open.pop() == tag


def test_page_is_self_contained_escaped_and_well_formed(run: Run) -> None:
    text = report_html(run)
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "image"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in text and "@import" not in text
    assert page.tags.count("svg") == 4
    assert "<script>" not in text and text.count("&lt;script&gt;") > 10
    assert "prefers-color-scheme: dark" in text


def test_page_without_any_known_count(run: Run) -> None:
    def blind(one: Arm) -> Arm:
        return replace(
            one, sent=tuple(replace(a, prompt_tokens=None, cached_tokens=None, ttft_ms=None) for a in one.sent)
        )

    text = report_html(replace(run, batch=tuple(map(blind, run.batch)), chat=tuple(map(blind, run.chat))))
    assert "unknown" in text and "None" not in text and ">0 of" not in text


def test_every_class_of_the_page_has_its_style(run: Run) -> None:
    text = report_html(run)
    style, body = text.split("</style>")
    used = {name for names in re.findall(r'class="(.+?)"', body) for name in names.split()}
    without = {name for name in used if not re.search(rf"\.{name}\b", style)}
    assert without <= {"label", "number"}, "drawn as any other text"
    assert {"contextpilot", "plain", "plain_append_only", "shared", "key-cached"} <= used


def test_the_figures_on_the_page_are_those_of_the_run(run: Run) -> None:
    text = report_html(run)
    assert "3 questions of several users and a chat of 1 turn over" in text
    assert "40.0 %" in text, "120 of the 300 prompt tokens"
    assert "210 → 180" in text and "−14 %" in text


def test_a_report_is_written_over_the_one_before(run: Run, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("x" * 100_000)
    first = write_report(run, tmp_path)
    assert write_report(run, tmp_path) == first == (tmp_path / "report.json", tmp_path / "report.html")
    assert first[1].read_text("utf-8") == report_html(run)
