"""Charts as inline SVG: strings without scripts or outside resources, coloured by the classes of ``report.css``."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
LABEL_WIDTH = 140
SHARE_WIDTH = 90
ROW_HEIGHT = 34
PLOT_HEIGHT = 190
TICKS = 4
ROUND_NUMBERS = (1, 1.2, 1.6, 2, 3, 4, 6, 8, 10)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar of cached and prefilled tokens; None is unknown."""

    label: str
    cached: int | None
    prefilled: int | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """The values of one arm, one per group of columns; ``style`` is a class of the style sheet."""

    name: str
    style: str
    values: Sequence[float | None]


def stacked_bars(bars: Sequence[Bar], title: str) -> str:
    """Draw one horizontal bar per arm: cached tokens, then prefilled tokens, on a common scale."""
    longest = max(((bar.cached or 0) + (bar.prefilled or 0) for bar in bars), default=0) or 1
    scale = (WIDTH - LABEL_WIDTH - SHARE_WIDTH) / longest
    rows = [_bar(bar, LABEL_WIDTH, number * ROW_HEIGHT, scale) for number, bar in enumerate(bars)]
    return _svg(WIDTH, ROW_HEIGHT * len(bars), title, rows)


def columns(groups: Sequence[str], series: Sequence[Series], unit: str, title: str) -> str:
    """Draw columns side by side, one group per request, over an axis in ``unit``."""
    known = [value for one in series for value in one.values if value is not None]
    top = _round_up(max(known, default=1.0))
    left, plot_width = 56, WIDTH - 56
    group_width = plot_width / max(1, len(groups))
    column_width = min(26.0, group_width * 0.8 / max(1, len(series)))
    parts = [_grid_line(top * tick / TICKS, top, left, unit) for tick in range(TICKS + 1)]
    for number, group in enumerate(groups):
        middle = left + group_width * (number + 0.5)
        parts.append(_text(middle, PLOT_HEIGHT + 30, group, "axis middle"))
        for place, one in enumerate(series):
            x = middle + (place - len(series) / 2) * column_width
            parts.append(_column(one, one.values[number], x, column_width - 2, top, unit))
    return _svg(WIDTH, PLOT_HEIGHT + 38, title, parts)


def _bar(bar: Bar, x: float, y: float, scale: float) -> str:
    label = _text(x - 12, y + 20, bar.label, "label end")
    if bar.cached is None or bar.prefilled is None:
        return label + _text(x + 4, y + 20, "unknown: the server does not say", "axis")
    cached, prefilled = bar.cached * scale, bar.prefilled * scale
    parts = [
        label,
        _rect(x, y + 5, cached, ROW_HEIGHT - 10, "cached", f"{bar.cached:,} tokens from the cache"),
        _rect(x + cached, y + 5, prefilled, ROW_HEIGHT - 10, "prefilled", f"{bar.prefilled:,} tokens prefilled"),
        _text(x + cached + prefilled / 2, y + 20, f"{bar.prefilled:,}", "on-prefilled middle"),
    ]
    if bar.cached + bar.prefilled:
        share = f"{bar.cached / (bar.cached + bar.prefilled):.0%} cached"
        parts.append(_text(x + cached + prefilled + 10, y + 20, share, "axis"))
    if cached > 46:
        parts.append(_text(x + cached / 2, y + 20, f"{bar.cached:,}", "on-cached middle"))
    return "".join(parts)


def _column(series: Series, value: float | None, x: float, width: float, top: float, unit: str) -> str:
    if value is None:
        return _text(x + width / 2, PLOT_HEIGHT + 8, "?", "axis middle")
    height = PLOT_HEIGHT * value / top
    return _rect(x, 10 + PLOT_HEIGHT - height, width, height, series.style, f"{series.name}: {value:,.1f} {unit}")


def _grid_line(value: float, top: float, left: float, unit: str) -> str:
    y = 10 + PLOT_HEIGHT * (1 - value / top)
    line = f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(left - 8, y + 4, f"{value:g} {unit}", "axis end")


def _round_up(value: float) -> float:
    """Return the next of a few round numbers times a power of ten: a readable end of an axis."""
    power = 1.0
    while power < value:
        power *= 10
    while power / 10 >= value > 0:
        power /= 10
    return next(step * power / 10 for step in ROUND_NUMBERS if step * power / 10 >= value)


def _rect(x: float, y: float, width: float, height: float, style: str, tip: str) -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}"'
    return f'<rect class="{style}" {size} rx="2"><title>{escape(tip)}</title></rect>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">{body}</svg>'
