"""A plan for people: as plain text, and as HTML for notebooks. Titles and texts are hostile until cleaned here."""

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from contextpilot_core.types import PlanReport

_PITCH, _ROW, _GAP = 34, 28, 56  # pixels: from row to row, of a row, between the columns
_SHARED, _NEW, _HINT = "#12a36b", "#8a8f98", "#3f7fe0"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DASHES = ' stroke-dasharray="4 3"'
_ELLIPSIS = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemView:
    """One block of a plan, in the order of the prompt.

    position: place in the caller's list. label: number of the ``[Doc n]`` that holds it, for a hint the one it points
    to (None: it has none). shared: expected in the prefix cache. tokens: of the whole body. spans_replaced: runs of
    the body that are hints.
    """

    position: int
    label: int | None
    kind: Literal["block", "hint"]
    title: str
    text_preview: str
    tokens: int
    shared: bool
    spans_replaced: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanView:
    """What `explain_plan` and `plan_html` show. ``dropped``: positions."""

    request_id: str
    items: Sequence[ItemView]
    dropped: Sequence[int]
    annotation: str
    report: PlanReport
    reason: str


def explain_plan(view: PlanView) -> str:
    """Return the plan in words: one line of figures, the reason, one line per block, what was left out."""
    lines = [f"Plan {_clean(view.request_id, 60)}: {_figures(view)}", f"Why: {_clean(view.reason, 400)}"]
    if view.annotation:
        lines.append(f"Note: {_clean(view.annotation, 400)}")
    if view.items:
        lines.append("place  position  tokens  sent as")
    for place, item in enumerate(view.items):
        lines.append(f"{place:5}  {item.position:8}  {item.tokens:6}  {_sent_as(item)}: {_name(item, 60)}")
    if view.dropped:
        lines.append(f"Repeats, sent once, at: {_numbers(view.dropped)}")
    if view.report.unselected:
        lines.append(f"Not selected, at: {_numbers(view.report.unselected)}")
    return "\n".join(lines)


def plan_html(view: PlanView) -> str:
    """Return the plan as one HTML element: retrieval order beside prompt order, the shared prefix coloured.

    It needs no style sheet, script or network, takes its text colour from the page (light or dark), and escapes
    everything that comes from a document.
    """
    return (
        '<div style="font:13px/1.45 system-ui,sans-serif;color:inherit;max-width:900px;padding:4px 0">'
        f'<div style="font-size:15px;{_ELLIPSIS}"><b>Plan {_escape(view.request_id, 60)}</b></div>'
        f'<div style="margin:2px 0 8px">{html.escape(_figures(view))}</div>'
        f"{_bar(view)}"
        f'<div style="margin:8px 0 10px;opacity:.8">{_escape(view.reason, 400)}</div>'
        f"{_columns(view)}</div>"
    )


def _columns(view: PlanView) -> str:
    before, links = _before(view)
    if not before:
        return ""
    height = _PITCH * max(len(before), len(view.items))
    return (
        f'<div style="display:grid;grid-template-columns:minmax(0,1fr) {_GAP}px minmax(0,1fr)">'
        f"{_heading('Retrieval order')}<div></div>{_heading('Prompt order')}"
        f"<div>{''.join(before)}</div>"
        f'<svg width="{_GAP}" height="{height}" style="display:block" aria-hidden="true">{"".join(links)}</svg>'
        f"<div>{''.join(map(_row_after, view.items))}{_note(view)}</div></div>"
    )


def _before(view: PlanView) -> tuple[list[str], list[str]]:
    """Return the rows of the retrieval order, and a curve from each block to its place in the prompt."""
    places = {item.position: place for place, item in enumerate(view.items)}
    left_out = dict.fromkeys(view.report.unselected, "not selected") | dict.fromkeys(view.dropped, "repeat, sent once")
    rows: list[str] = []
    links: list[str] = []
    for row, position in enumerate(sorted(places.keys() | left_out.keys())):
        if position not in places:
            middle = f'<i style="opacity:.75">{left_out[position]}</i>'
            rows.append(_row(_NEW, "dotted", str(position), middle, "", faint=True))
            continue
        place = places[position]
        item = view.items[place]
        colour, line = _look(item)
        rows.append(_row(colour, line, str(position), _title(item), str(item.tokens)))
        start, end = (_PITCH * at + _ROW // 2 for at in (row, place))
        links.append(
            f'<path d="M0 {start}C{_GAP // 2} {start} {_GAP // 2} {end} {_GAP} {end}" fill="none" stroke="{colour}" '
            f'stroke-width="2" stroke-opacity=".75"{_DASHES if item.kind == "hint" else ""}/>'
        )
    return rows, links


def _row_after(item: ItemView) -> str:
    colour, line = _look(item)
    end = str(item.tokens)
    if item.kind == "hint":
        end = "hint"
    elif item.spans_replaced:
        end = f"{_count(item.spans_replaced, 'span hint')} · {item.tokens}"
    label = "earlier" if item.label is None else f"{'→ ' if item.kind == 'hint' else ''}Doc {item.label}"
    return _row(colour, line, label, _title(item), end)


def _row(colour: str, line: str, start: str, middle: str, end: str, *, faint: bool = False) -> str:
    """Return one row; ``middle`` is HTML, the rest plain text. A colour's last two digits are its alpha."""
    return (
        f'<div style="box-sizing:border-box;height:{_ROW}px;margin-bottom:{_PITCH - _ROW}px;display:flex;gap:8px;'
        f"align-items:center;padding:0 8px;border-left:4px {line} {colour};border-radius:3px;"
        f'background:{colour}{"12" if faint else "2b"}">'
        f'<span style="flex:none;min-width:18px;font-weight:600">{html.escape(start)}</span>'
        f'<span style="flex:1;min-width:0;{_ELLIPSIS}">{middle}</span>'
        f'<span style="flex:none;opacity:.75">{html.escape(end)}</span></div>'
    )


def _title(item: ItemView) -> str:
    """Return the title and the beginning of the text as HTML; the whole preview shows on hovering."""
    preview = _escape(item.text_preview, 160)
    title = _escape(item.title, 60)
    shown = f'<bdi>{title}</bdi> <bdi style="opacity:.6">{preview}</bdi>' if title else f"<bdi>{preview}</bdi>"
    return f'<span title="{preview}">{shown}</span>'


def _bar(view: PlanView) -> str:
    """Return a bar of the tokens: expected in the cache, computed anew, replaced by hints."""
    report = view.report
    new = max(0, report.block_tokens - report.expected_reused_tokens) + report.note_tokens
    parts = (
        (_SHARED, report.expected_reused_tokens, "expected in the cache"),
        (_NEW, new, "computed"),
        (_HINT, report.hinted_tokens, "replaced by hints"),
    )
    shown = [part for part in parts if part[1] > 0]
    if not shown:
        return ""
    pieces = "".join(f'<div style="flex:{tokens} 0 0;background:{colour}"></div>' for colour, tokens, _ in shown)
    legend = "".join(
        f'<span style="margin-right:16px;white-space:nowrap"><span style="display:inline-block;width:10px;'
        f'height:10px;border-radius:2px;background:{colour};margin-right:5px"></span>{tokens:,} {words}</span>'
        for colour, tokens, words in shown
    )
    return (
        f'<div style="display:flex;gap:2px;height:10px;border-radius:3px;overflow:hidden">{pieces}</div>'
        f'<div style="margin-top:4px;font-size:12px;opacity:.85">{legend}</div>'
    )


def _note(view: PlanView) -> str:
    if not view.annotation:
        return ""
    return (
        f'<div style="padding:0 12px;font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere">'
        f"{_escape(view.annotation, 400)}</div>"
    )


def _heading(text: str) -> str:
    return f'<div style="font-weight:600;opacity:.75;margin-bottom:4px">{text}</div>'


def _look(item: ItemView) -> tuple[str, str]:
    if item.kind == "hint":
        return _HINT, "dashed"
    return (_SHARED if item.shared else _NEW), "solid"


def _sent_as(item: ItemView) -> str:
    if item.kind == "hint":
        return "hint to an earlier message" if item.label is None else f"hint to [Doc {item.label}]"
    spans = f", {_count(item.spans_replaced, 'span hint')}" if item.spans_replaced else ""
    return f"[Doc {item.label}]{', expected in the cache' if item.shared else ''}{spans}"


def _figures(view: PlanView) -> str:
    hints = sum(item.kind == "hint" for item in view.items)
    report = view.report
    share = f" ({report.expected_reused_tokens / report.block_tokens:.0%})" if report.block_tokens else ""
    parts = [
        f"{_count(len(view.items) - hints, 'block')} of {_count(report.block_tokens, 'token')}, "
        f"{report.expected_reused_tokens:,} expected in the cache{share}"
    ]
    if hints:
        parts.append(f"{_count(hints, 'hint')} in place of {_count(report.hinted_tokens, 'token')}")
    if report.note_tokens:
        parts.append(f"note of {_count(report.note_tokens, 'token')}")
    return "; ".join(parts)


def _name(item: ItemView, limit: int) -> str:
    return _clean(item.title, limit) or _clean(item.text_preview, limit)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _numbers(positions: Sequence[int]) -> str:
    return ", ".join(map(str, positions))


def _escape(text: str, limit: int) -> str:
    return html.escape(_clean(text, limit))


def _clean(text: str, limit: int) -> str:
    """Return one line of at most ``limit`` characters that any terminal and any page can show.

    Control characters (terminal commands among them), lone surrogates and marks that turn the direction of what
    follows are replaced.
    """
    shown = "".join(
        " " if char.isspace() else "\ufffd" if char in _BIDI or unicodedata.category(char) in ("Cc", "Cs") else char
        for char in text[: 2 * limit]
    )
    line = " ".join(shown.split())
    return line if len(line) <= limit and len(text) <= 2 * limit else f"{line[: limit - 1]}…"
