"""The one renderer: labels, runs and texts of documents in any order, and the record of what they show."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ReuseEngine
from contextpilot_core.config import EngineConfig
from contextpilot_core.prompt import section as module
from contextpilot_core.prompt.messages import body_digest
from contextpilot_core.prompt.section import Sections, render_bodies, render_in_place
from contextpilot_core.prompt.visible import NOTHING, Visible, foreign_record
from contextpilot_core.tokens import estimate_tokens
from contextpilot_core.types import Segment
from tests.core.prose import STRUCTURED, prose
from tests.parsing import ParsedBlock, ParsedHint, parse_context

LONG, TEA, MILK = (prose(seed, 30) for seed in (41, 42, 43))
CONFIG = EngineConfig()


def sections(
    *bodies: str, visible: Visible = NOTHING, config: EngineConfig = CONFIG, hints: dict[int, int | None] | None = None
) -> Sections:
    return Sections(bodies, range(len(bodies)), hints or {}, visible, config, estimate_tokens)


def talk(*bodies: str, config: EngineConfig = CONFIG) -> Visible:
    """What a message shows that was rendered with these bodies."""
    text, record = render_bodies(bodies, config, estimate_tokens)
    return Visible(((record, text),))


def test_documents_as_they_stand_in_a_prompt():
    section = sections("tea", "a === b", "milk").section((2, 1))
    assert section.context.text == "[Doc 1]\n===\nmilk\n===\n[Doc 2]\n====\na === b\n===="
    assert (section.order, section.labels) == ((2, 1), (1, 2))
    assert section.segments == ((Segment("milk"),), (Segment("a === b"),))
    record = section.record(
        [body_digest(text) for text in ("tea", "a === b", "milk")], rest="\n[Doc 8]", path=((b"p", 3),)
    )
    assert dict(record.labels) == {body_digest("milk"): 1, body_digest("a === b"): 2}
    assert (record.rendered, record.doubtful, record.highest, record.path) == ({1, 2}, {8}, 2, ((b"p", 3),))
    assert [section.context.text[start : start + length] for _, start, length in record.pieces] == ["milk", "a === b"]


def test_labels_go_on_behind_the_messages_and_hints_take_none():
    made = sections("a", "b", "c", "d", visible=talk(TEA, MILK), hints={1: 2, 3: None})
    assert made.labels((0, 1, 2, 3)) == (3, 2, 4, None)
    assert made.labels((3, 2, 1)) == (None, 3, 2)
    section = made.section((3, 2, 1))
    assert section.context.text == "Same text as in an earlier message.\n[Doc 3]\n===\nc\n===\nSee [Doc 2] above."
    assert section.segments == ((Segment("d", None),), (Segment("c"),), (Segment("b", 2),))
    record = section.record([b"a", b"b", b"c", b"d"])
    assert (dict(record.labels), record.rendered, record.highest) == ({b"c": 3}, {3}, 3)


def test_what_a_hint_names_counts_for_the_next_label():
    record = sections("a", "b", hints={0: 7}).section((0, 1)).record([b"a", b"b"])
    assert (dict(record.labels), record.highest) == ({b"b": 1}, 7)


def test_runs_are_sent_once_and_the_first_place_keeps_them():
    titled = f"Title.\n\n{LONG}"
    made = sections(LONG, titled)
    assert made.segments((0, 1)) == ((Segment(LONG),), (Segment("Title.\n\n"), Segment(LONG, 1)))
    assert made.segments((1, 0)) == ((Segment(titled),), (Segment(LONG, 1),))
    section = made.section((0, 1))
    assert section.context.text.endswith("[Doc 2]\n===\nTitle.\n\n(see [Doc 1])\n===")
    assert section.record([b"long", b"titled"]).labels == ((b"long", 1),)


def test_runs_that_the_messages_show_are_replaced_unless_their_label_is_unclear():
    titled, shown = f"Title.\n\n{LONG}", talk(TEA, LONG)
    assert sections(titled, visible=shown).segments((0,)) == ((Segment("Title.\n\n"), Segment(LONG, 2)),)
    unclear = Visible(shown.shown, ((foreign_record("[Doc 2]", readable=False), None),))
    assert sections(titled, visible=unclear).segments((0,)) == ((Segment(titled),),)


def test_a_label_that_a_message_shows_already_is_named_by_no_hint():
    foreign = Visible((), ((foreign_record("[Doc 1]", readable=False), None),))
    assert sections(LONG, f"{LONG} more", visible=foreign).segments((0, 1))[1] == (Segment(f"{LONG} more"),)


def test_what_hints_stand_for_is_no_source():
    assert sections(LONG, f"{LONG} more", hints={0: None}).segments((0, 1)) == (
        (Segment(LONG, None),),
        (Segment(f"{LONG} more"),),
    )


@pytest.mark.parametrize("fields", [{"dedup": False}, {"span_dedup": False}])
def test_without_spans_bodies_are_whole(fields: dict[str, bool]):
    made = sections(LONG, f"{LONG} more", config=EngineConfig(**fields))
    assert made.segments((0, 1)) == ((Segment(LONG),), (Segment(f"{LONG} more"),))
    assert made.replaced_tokens((0, 1), 2) == 0


def test_replaced_tokens_are_those_of_the_leading_places():
    made = sections(LONG, f"{LONG} {TEA}", f"{MILK} {TEA}", MILK, hints={3: 9})
    order = (0, 1, 3, 2)
    cost = estimate_tokens(LONG), estimate_tokens(TEA)
    assert [made.replaced_tokens(order, places) for places in range(5)] == [0, 0, cost[0], cost[0], sum(cost)]
    assert made.replaced_tokens((2, 0), 2) == 0


def test_what_does_not_depend_on_the_order_is_worked_out_once(monkeypatch: pytest.MonkeyPatch):
    looked, cut = [], []

    def seen(calls: list[int], real: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments, **options: calls.append(1) or real(*arguments, **options)

    monkeypatch.setattr(module, "common_marks", seen(looked, module.common_marks))
    monkeypatch.setattr(module, "split_blocks", seen(cut, module.split_blocks))
    made = sections(LONG, f"{LONG} more", TEA)
    for order in ((0, 1, 2), (1, 0, 2), (0, 1, 2), (1, 0)):
        made.section(order)
        made.replaced_tokens(order, 2)
    assert (len(looked), len(cut)) == (1, 3)
    assert made.segments((0, 1, 2)) is made.segments((0, 1, 2))


@pytest.mark.parametrize("fake", [f"{MILK}\n[Doc 1]\n===\n", "[Doc 1]"])
def test_where_no_engine_plans_no_hint_names_a_label_that_a_text_imitates(fake: str):
    config = EngineConfig()
    _, record = render_in_place([LONG, fake, LONG], ["", "\n", "\n", ""], config, estimate_tokens)
    assert len(record.labels) == 3
    shown = render_bodies([LONG], config, estimate_tokens)
    visible = Visible(((shown[1], shown[0]),))
    assert not render_bodies([LONG], config, estimate_tokens, visible)[1].labels  # a hint
    assert len(render_bodies([LONG, fake], config, estimate_tokens, visible)[1].labels) == 2


# --- bodies alone


def test_bodies_are_rendered_as_a_plan_renders_them():
    bodies = [TEA, f"{TEA}\n{MILK}", LONG, TEA, STRUCTURED[0], STRUCTURED[0] + "\n", ""]
    for fields in ({}, {"dedup": False}, {"span_dedup": False}, {"hint": "({label})", "span_hint": "<{label}>"}):
        config = EngineConfig(strategy="none", **fields)  # type: ignore[arg-type]
        engine = ReuseEngine(config)
        plan = engine.plan(bodies)
        text, record = render_bodies(bodies, config, estimate_tokens)
        assert text == plan.text
        history = plan.messages
        again = engine.plan([MILK, *bodies[::-1]], messages=history)
        rendered, later = render_bodies([MILK, *bodies[::-1]], config, estimate_tokens, Visible(((record, text),)))
        assert rendered == again.text
        assert plan.shown is not None and again.shown is not None
        for mine, planned in ((record, plan.shown[1]), (later, again.shown[1])):
            assert (mine.labels, mine.pieces, mine.highest) == (planned.labels, planned.pieces, planned.highest)


def test_no_bodies_are_no_text():
    text, record = render_bodies([], CONFIG, estimate_tokens)
    assert (text, record.labels, record.highest) == ("", (), 0)


# --- any documents behind any messages

TEXTS = [
    TEA,
    MILK,
    f"Title\n\n{LONG}",
    LONG,
    f"{LONG} {TEA}",
    "short",
    "",
    "===\n[Doc 1]\n===",
    "[Doc 2]",
    STRUCTURED[1],
]
chosen = st.lists(st.sampled_from(TEXTS), max_size=6)
configs = st.builds(EngineConfig, dedup=st.booleans(), span_dedup=st.booleans())


@settings(max_examples=300, deadline=None)
@given(st.lists(chosen, max_size=2), chosen, configs, st.data())
def test_sections_lose_nothing_and_their_record_is_what_they_show(
    before: list[list[str]], bodies: list[str], config: EngineConfig, data: st.DataObject
):
    visible = NOTHING
    for earlier in before:
        text, record = render_bodies(earlier, config, estimate_tokens, visible)
        visible = Visible((*visible.shown, (record, text)))
    digests = [body_digest(body) for body in bodies]
    tokens = [estimate_tokens(body) for body in bodies]
    hints = visible.hints(range(len(bodies)), bodies, digests, tokens, config, estimate_tokens)
    made = Sections(bodies, range(len(bodies)), hints, visible, config, estimate_tokens)
    order = tuple(data.draw(st.permutations(range(len(bodies)))))
    section = made.section(order)
    check(section.context.text, section, bodies, hints)
    record = section.record(digests)
    fresh = [label for position, label in zip(order, section.labels, strict=True) if position not in hints]
    assert fresh == list(range(visible.next_label, visible.next_label + len(fresh)))
    assert record.rendered == set(fresh)
    shown = {item.label: item.body for item in parse_context(section.context.text) if isinstance(item, ParsedBlock)}
    whole = {
        digests[p]
        for p, run in zip(order, section.segments, strict=True)
        if p not in hints and run == (Segment(bodies[p]),)
    }
    assert dict(record.labels).keys() == whole
    assert all(body_digest(shown[label]) == digest for digest, label in record.labels)
    literal = [
        run.text
        for p, own in zip(order, section.segments, strict=True)
        if p not in hints
        for run in own
        if run.label is None
    ]
    assert [section.context.text[at : at + length] for _, at, length in record.pieces] == [
        run for run in literal if run
    ]


def check(text: str, section: module.Section, bodies: Sequence[str], hints: dict[int, int | None]) -> None:
    """Every place is a block or a line, and its runs are its body."""
    items = parse_context(text) if section.order else ()
    for position, run, item in zip(section.order, section.segments, items, strict=True):
        assert "".join(part.text for part in run) == bodies[position]
        assert isinstance(item, ParsedHint) == (position in hints)
