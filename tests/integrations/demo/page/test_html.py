"""The demo's figures and its report, from made-up answers."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contextpilot_integrations.demo.page.charts import Bar, Series, columns, stacked_bars
from contextpilot_integrations.demo.page.html import report_html, write_report
from contextpilot_integrations.demo.page.prompts import most_telling, pieces, prompt_text, shared_prefix
from contextpilot_integrations.demo.results import Answer, Arm, Run, change, milliseconds, percent, tokens

HOSTILE = "<script>alert('x')</script> & \"quotes\" {braces}"


def answer(number: int, documents: str = "AB", *, cached: int | None = 30, ttft: float | None = 500.0) -> Answer:
    blocks = "\n".join(f"[Doc {n + 1}]\n===\nTitle {name}\n{name * 20}\n===" for n, name in enumerate(documents))
    return Answer(
        number=number,
        question=f"Question {number}? {HOSTILE}",
        messages=({"role": "system", "content": "S"}, {"role": "user", "content": f"{blocks}\n\nQuestion {number}?"}),
        text=f"Answer {number} {HOSTILE}",
        prompt_tokens=100,
        cached_tokens=cached,
        ttft_ms=ttft,
    )


def arm(name: str, *answers: Answer) -> Arm:
    return Arm(name=name, sent=answers, seconds=1.0)


@pytest.fixture
def run() -> Run:
    return Run(
        batch=(
            arm("plain", answer(0, "AB"), answer(1, "CA"), answer(2, "BA")),
            arm("contextpilot", answer(2, "AB"), answer(0, "AB", cached=60), answer(1, "AC")),
        ),
        chat=(arm("plain", answer(0)), arm("plain_append_only", answer(0)), arm("contextpilot", answer(0))),
        model=f"model {HOSTILE}",
        documents=f"documents {HOSTILE}",
        settings=(("Seed", f"0 {HOSTILE}"),),
    )


def test_figures_are_sums_with_answers_in_question_order(run: Run) -> None:
    figures = run.figures()
    assert set(figures["batch"]) == {"plain", "contextpilot"}
    assert set(figures["chat"]) == {"plain", "plain_append_only", "contextpilot"}
    ours = figures["batch"]["contextpilot"]
    assert ours.pop("answers") == [f"Answer {number} {HOSTILE}" for number in range(3)]
    assert ours == {
        "requests": 3,
        "prompt_tokens": 300,
        "cached_tokens": 120,
        "prefilled_tokens": 180,
        "ttft_ms_median": 500.0,
    }


def test_unknown_counts_are_null_and_never_zero() -> None:
    figures = arm("plain", answer(0), answer(1, cached=None, ttft=None)).figures()
    assert figures["prompt_tokens"] == 200
    assert figures["cached_tokens"] is figures["prefilled_tokens"] is figures["ttft_ms_median"] is None


def test_report_files(run: Run, tmp_path: Path) -> None:
    paths = write_report(run, tmp_path / "new" / "folder")
    assert json.loads(paths[0].read_text("utf-8")) == json.loads(json.dumps(run.figures()))
    assert paths[1].read_text("utf-8") == report_html(run)


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


def test_shared_prefix_counts_only_what_was_sent_before(run: Run) -> None:
    ours = run.batch[1]
    first, second, third = ours.sent
    assert shared_prefix(ours, first) == 0
    whole = prompt_text(second.messages)
    assert shared_prefix(ours, second) == len(whole) - len("0?")
    assert 0 < shared_prefix(ours, third) < whole.index("BBB")


def test_most_telling_is_the_largest_gain(run: Run) -> None:
    plain, ours = most_telling(*run.batch)
    assert plain.number == ours.number == 0


def test_pieces_are_documents_and_what_is_between_them() -> None:
    text = prompt_text(answer(0, "AB").messages)
    shared = text.index("[Doc 2]")
    found = pieces(text, shared)
    assert [piece.label for piece in found] == ["", "[Doc 1]", "[Doc 2]", ""]
    assert [piece.shared for piece in found] == [1.0, 1.0, 0.0, 0.0]
    assert found[1].text == "Title A\n" + "A" * 20


def test_a_fence_like_line_in_a_document_does_not_end_it() -> None:
    text = "[Doc 1]\n====\nTitle\n===\nrest\n====\n\nQuestion?"
    assert [piece.text for piece in pieces(text, 0)] == ["Title\n===\nrest", "Question?"]


def test_charts_show_unknown_and_escape_names() -> None:
    bars = stacked_bars([Bar(label="<a>", cached=None, prefilled=None), Bar(label="b", cached=0, prefilled=0)], "<t>")
    assert "unknown" in bars and "&lt;a&gt;" in bars and "<t>" not in bars
    drawn = columns(["Q1", "Q2"], [Series(name="plain", style="plain", values=[1.5, None])], "s", "title")
    assert drawn.count('class="plain"') == 1 and ">?</text>" in drawn
    assert not re.search(r"(nan|inf)", columns(["Q1"], [Series(name="p", style="p", values=[0.0])], "s", "t"))


def test_wording() -> None:
    assert [tokens(None), percent(None), milliseconds(None), change(None, 1), change(0, 1)] == ["unknown"] * 5
    assert [tokens(1234), percent(0.1234), milliseconds(85.4), milliseconds(2412)] == [
        "1,234",
        "12.3 %",
        "85 ms",
        "2.41 s",
    ]
    assert [change(100, 75), change(100, 110)] == ["−25 %", "+10 %"]
