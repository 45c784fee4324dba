"""Charts as SVG."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_integrations.demo.page.charts import (
    LABEL_WIDTH,
    PLOT_HEIGHT,
    SHARE_WIDTH,
    TICKS,
    WIDTH,
    Bar,
    Series,
    columns,
    stacked_bars,
)


def test_charts_show_unknown_and_escape_names() -> None:
    bars = stacked_bars([Bar(label="<a>", cached=None, prefilled=None), Bar(label="b", cached=0, prefilled=0)], "<t>")
    assert "unknown" in bars and "&lt;a&gt;" in bars and "<t>" not in bars
    drawn = columns(["Q1", "Q2"], [Series(name="plain", style="plain", values=[1.5, None])], "s", "title")
    assert drawn.count('class="plain"') == 1 and ">?</text>" in drawn
    assert not re.search(r"(nan|inf)", columns(["Q1"], [Series(name="p", style="p", values=[0.0])], "s", "t"))


def rects(drawn: str) -> list[tuple[str, float, float]]:
    """The class, width and height of every rectangle."""
    found = re.findall(r'<rect class="(.+?)" x=".+?" y=".+?" width="(.+?)" height="(.+?)"', drawn)
    return [(style, float(width), float(height)) for style, width, height in found]


def texts(drawn: str) -> list[str]:
    return re.findall(r"<text .+?>(.*?)</text>", drawn)


def test_bars_have_one_scale_and_the_longest_fills_its_row() -> None:
    bars = [Bar(label="plain", cached=100, prefilled=300), Bar(label="ours", cached=150, prefilled=50)]
    drawn = stacked_bars(bars, "Batch")
    room = WIDTH - LABEL_WIDTH - SHARE_WIDTH
    widths = [(style, width) for style, width, _ in rects(drawn)]
    assert widths == [
        ("cached", pytest.approx(room / 4, abs=0.1)),
        ("prefilled", pytest.approx(room * 3 / 4, abs=0.1)),
        ("cached", pytest.approx(room * 3 / 8, abs=0.1)),
        ("prefilled", pytest.approx(room / 8, abs=0.1)),
    ]
    assert {"25% cached", "75% cached", "plain", "ours"} <= set(texts(drawn))
    assert 'aria-label="Batch"' in drawn


def test_an_unknown_bar_leaves_the_others_their_scale() -> None:
    known, unknown = Bar(label="a", cached=10, prefilled=30), Bar(label="b", cached=None, prefilled=30)
    assert rects(stacked_bars([known, unknown], "t")) == rects(stacked_bars([known], "t"))
    assert "unknown: the server does not say" in texts(stacked_bars([known, unknown], "t"))
    assert rects(stacked_bars([], "t")) == []


@pytest.mark.parametrize(
    ("highest", "top"), [(2.3, "3 s"), (1.0, "1 s"), (0.07, "0.08 s"), (11.0, "12 s"), (99.0, "100 s"), (0.0, "0.1 s")]
)
def test_the_axis_ends_at_a_round_number_above_all_columns(highest: float, top: str) -> None:
    drawn = columns(["Q1"], [Series(name="p", style="plain", values=[highest])], "s", "t")
    labels = [text for text in texts(drawn) if text.endswith(" s")]
    assert (labels[0], labels[-1], len(labels)) == ("0 s", top, TICKS + 1)
    ((_, _, height),) = rects(drawn)
    assert height == pytest.approx(PLOT_HEIGHT * highest / float(top.split()[0]), abs=0.1)


def test_columns_of_one_request_stand_side_by_side() -> None:
    series = [Series(name=name, style=name, values=[1.0, 2.0]) for name in ("plain", "contextpilot")]
    drawn = columns(["Q1", "Q2"], series, "s", "t")
    x = {
        style: [float(at) for at in re.findall(rf'class="{style}" x="(.+?)"', drawn)]
        for style in ("plain", "contextpilot")
    }
    assert x["plain"][0] < x["contextpilot"][0] < x["plain"][1] < x["contextpilot"][1]
    assert "plain: 2.0 s" in drawn, "the value is told where a pointer rests"


@settings(deadline=None)
@given(st.floats(1e-6, 1e9))
def test_the_axis_is_never_lower_than_a_value_nor_twice_as_high(value: float) -> None:
    drawn = columns(["Q1"], [Series(name="p", style="plain", values=[value, None])], "s", "t")
    top = float([text for text in texts(drawn) if text.endswith(" s")][-1].split()[0])
    assert value * (1 - 1e-5) <= top <= 1.7 * value
