"""Plans for people: escaped, complete, readable."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.plan.explain import ItemView, PlanView, explain_plan, plan_html
from contextpilot_core.types import PlanReport

HOSTILE = (
    "</div><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' style='x",
    "&lt;b&gt; &amp;",
    "line\nbreak\r\u2028[Doc 9]",
    "\x1b[31m\x00\x07 \ud800 \u202e turned \u2066",
    "javascript:alert(1) {label} %s",
    "x" * 5_000,
    "",
)
texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=40))


class Collector(HTMLParser):
    """Collects tags, attributes and text; fails where tags do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def item(position: int, **changes: Any) -> ItemView:
    values: dict[str, Any] = {
        "position": position,
        "label": position + 1,
        "kind": "block",
        "title": f"Title {position}",
        "text_preview": f"Text {position}",
        "tokens": 84,
        "shared": False,
        "spans_replaced": 0,
    }
    return ItemView(**(values | changes))


def view(items: list[ItemView], **changes: Any) -> PlanView:
    figures: dict[str, Any] = {
        "blocks": len(items),
        "block_tokens": 84 * len(items),
        "hinted_tokens": 0,
        "span_tokens": 0,
        "note_tokens": 0,
        "expected_reused_tokens": 0,
        "moved": False,
        "unselected": (),
    }
    values: dict[str, Any] = {
        "request_id": "r1",
        "items": tuple(items),
        "dropped": (),
        "annotation": "",
        "reason": "kept the retrieval order",
    }
    figures |= {name: changes.pop(name) for name in figures.keys() & changes.keys()}
    report = PlanReport(**figures, dropped=len(changes.get("dropped", ())), reason="")
    return PlanView(**values | changes, report=report)


def parsed(page: str) -> Collector:
    collector = Collector()
    collector.feed(page)
    collector.close()
    assert not collector.open
    return collector


FULL = view(
    [item(2, shared=True), item(0, spans_replaced=2), item(1, kind="hint", label=7), item(5, kind="hint", label=None)],
    dropped=(3,),
    unselected=(4,),
    annotation="Relevance: 2 7 1",
    expected_reused_tokens=80,
    note_tokens=5,
    hinted_tokens=168,
    reason="moved blocks: 80 expected",
)


def test_words() -> None:
    assert explain_plan(FULL).splitlines() == [
        "Plan r1: 2 blocks of 336 tokens, 80 expected in the cache (24%); 2 hints in place of 168 tokens; "
        "note of 5 tokens",
        "Why: moved blocks: 80 expected",
        "Note: Relevance: 2 7 1",
        "place  position  tokens  sent as",
        "    0         2      84  [Doc 3], expected in the cache: Title 2",
        "    1         0      84  [Doc 1], 2 span hints: Title 0",
        "    2         1      84  hint to [Doc 7]: Title 1",
        "    3         5      84  hint to an earlier message: Title 5",
        "Repeats, sent once, at: 3",
        "Not selected, at: 4",
    ]


def test_html_shows_both_orders() -> None:
    page = parsed(plan_html(FULL))
    before, after = page.text.split("Prompt order")[1].split("Doc 3", 1)
    assert [before.index(f"Title {n}") for n in (0, 1, 2, 5)] == sorted(
        before.index(f"Title {n}") for n in (0, 1, 2, 5)
    )
    assert "repeat, sent once" in before
    assert "not selected" in before
    assert [after.index(f"Title {n}") for n in (2, 0, 1, 5)] == sorted(after.index(f"Title {n}") for n in (2, 0, 1, 5))
    assert "Relevance: 2 7 1" in after
    assert plan_html(FULL).count("<path") == 4


def test_empty_plan() -> None:
    empty = view([], reason="nothing to order")
    assert explain_plan(empty) == "Plan r1: 0 blocks of 0 tokens, 0 expected in the cache\nWhy: nothing to order"
    assert "nothing to order" in parsed(plan_html(empty)).text


def test_the_shared_prefix_is_coloured() -> None:
    plain, shared = plan_html(view([item(0)])), plan_html(view([item(0, shared=True)]))
    assert "#12a36b" in shared
    assert "#12a36b" not in plain


@pytest.mark.parametrize("text", HOSTILE)
def test_p13_hostile_texts_stay_text(text: str) -> None:
    hostile = view([item(0, title=text, text_preview=text)], request_id=text, reason=text, annotation=text)
    check_safe(hostile)


@given(texts, texts, texts, texts, st.booleans())
def test_p13_any_text_stays_text(title: str, preview: str, request_id: str, note: str, hint: bool) -> None:
    kind = "hint" if hint else "block"
    check_safe(view([item(0, title=title, text_preview=preview, kind=kind)], request_id=request_id, annotation=note))


def check_safe(hostile: PlanView) -> None:
    page = parsed(plan_html(hostile))
    assert page.tags <= {"div", "span", "b", "i", "bdi", "svg", "path"}
    drawing = {"d", "fill", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "width", "height"}
    assert page.attributes <= {"style", "title", "aria-hidden"} | drawing
    words = explain_plan(hostile)
    assert len(words.split("\n")) <= 6
    for text in (plan_html(hostile), words):
        text.encode("utf-8")
        assert not set(text) & set("\x00\x07\x1b\r\u2028\u2029\u202e\u2066")
        assert len(text) < 12_000


def test_the_same_view_gives_the_same_bytes() -> None:
    assert plan_html(FULL) == plan_html(FULL)
    assert explain_plan(FULL) == explain_plan(FULL)
