"""Tables of reuse: every builder takes all results by name and returns Markdown."""

from typing import Any

from benchmarks.markdown import percent, table
from benchmarks.scoring import USUAL

Results = dict[str, Any]
HEADLINE = ("multihoprag.trace.bm25", "qasper.trace.dense", "narrativeqa.trace.dense", "locomo_mem.conversations.bm25")
BY_CACHE = (
    "multihoprag.trace.bm25",
    "qasper.trace.dense",
    "qasper_ev.trace.dense",
    "narrativeqa.trace.dense",
    "locomo_mem.conversations.bm25",
)
MODES = {
    "offline": "batch",
    "online": "one by one, not told of evictions",
    "online_synced": "one by one, told of evictions",
    "window_8": "W = 8",
    "window_32": "W = 32",
    "window_128": "W = 128",
}
"""How 0.5.0 is used, in the results and in words."""


def headline(results: Results) -> str:
    """The few rows of the README."""
    columns = {
        "plain": "retrieval order",
        "ours_online": "one by one",
        "ours_window_32": "32 waiting together",
        "ours_offline": "as a batch",
        "peer_offline": "as a batch, contextpilot 0.5.0",
    }
    return _traces(results, columns, traces=HEADLINE)


def offline(results: Results) -> str:
    """All requests are known beforehand."""
    columns = {
        "plain": "retrieval order",
        "frequency": "frequency",
        "ggr": "GGR",
        "paper_offline": "paper",
        "paper_offline_alg5": "paper, alg. 5",
        "peer_offline": "0.5.0",
        "ours_offline": "**ours**",
        "upper_bound": "bound",
    }
    return _traces(results, columns)


def online(results: Results) -> str:
    """Requests come one after the other, or some of them wait together."""
    columns = {
        "plain": "retrieval order",
        "paper_online": "paper",
        "peer_online": "0.5.0",
        "peer_online_synced": "0.5.0, told of evictions",
        "ours_online": "**ours**",
        "peer_window_8": "0.5.0, W = 8",
        "ours_window_8": "**ours, W = 8**",
        "peer_window_32": "0.5.0, W = 32",
        "ours_window_32": "**ours, W = 32**",
        "peer_window_128": "0.5.0, W = 128",
        "ours_window_128": "**ours, W = 128**",
    }
    return _traces(results, columns)


def by_cache(results: Results) -> str:
    """Caches of different sizes."""
    columns = {
        "plain": "retrieval order",
        "ggr": "GGR",
        "paper_offline": "paper, batch",
        "peer_offline": "0.5.0, batch",
        "ours_offline": "**ours, batch**",
        "paper_online": "paper, one by one",
        "peer_online_synced": "0.5.0, one by one",
        "ours_online": "**ours, one by one**",
        "peer_window_32": "0.5.0, W = 32",
        "ours_window_32": "**ours, W = 32**",
    }
    rows = []
    for name in BY_CACHE:
        for cache in results["reuse"]["caches"]:
            size = cache if cache == "unbounded" else f"{int(cache):,}"
            rows.append([name, size, *[percent(_value(results, name, column, cache)) for column in columns]])
    return table(["trace", "cache", *columns.values()], rows)


def net(results: Results) -> str:
    """Whole KV blocks of 16, less the tokens of the notes, and before that."""
    head = ["trace", "retrieval order"]
    for mode in ("one by one", "W = 32", "batch"):
        head += [f"0.5.0, {mode}", "(before the notes)", f"**ours, {mode}**", "(before the notes)"]
    rows = []
    for name, row in results["reuse"]["traces"].items():
        own, peer = row["whole_kv_blocks"], results["peer"]["traces"][name]
        cells = [own["plain"]["net"]]
        for arm, other in (("online", "online_synced"), ("window_32", "window_32"), ("offline", "offline")):
            cells += _net(peer[other].get("whole_kv_blocks")) + _net(own[f"ours_{arm}"])
        rows.append([name, *[percent(cell) for cell in cells]])
    return table(head, rows)


def selection(results: Results) -> str:
    """Selection: 15 of 20 candidates, 12 pinned."""
    rows = []
    for name, row in results["reuse"]["selection"].items():
        arms = results["reuse"]["traces"][name]["arms"]["ours_online"]
        cells = [f"{arms[cache]:.1%} -> {row[cache]['reuse']:.1%}" for cache in (USUAL, "unbounded")]
        found = row[USUAL]
        recall = "-" if found["recall"] is None else f"{found['recall_by_rank']:.1%} -> {found['recall']:.1%}"
        rows.append([name, *cells, recall])
    return table(["trace", "reuse, cache of 40,000", "reuse, unbounded", "recall of the evidence"], rows)


def faults(results: Results) -> str:
    """Where the public release fails: only traces that show something."""
    rows = []
    for name, modes in results["peer"]["traces"].items():
        for mode, row in modes.items():
            if row["reuse"] is None:
                rows.append([name, MODES[mode], "not done in the time", "", ""])
                continue
            found, error = row["faults"], row["first_error"]
            if row["errors"] or found["lost"] or found["added"] or found["requests"]:
                raised = f"{row['errors']:,}, first at {error[0]:,}: `{error[1][:90]}`" if error else "0"
                rows.append([name, MODES[mode], raised, _count(found, "lost"), _count(found, "added")])
    return table(["trace", "mode", "requests that raise", "documents lost", "documents added"], rows)


def _count(found: dict[str, Any], what: str) -> str:
    return f"{found[what]:,}, first in request {found[f'first_{what}']:,}" if found[what] else "0"


def _net(row: dict[str, float] | None) -> list[float | None]:
    return [row["net"], row["reuse"]] if row else [None, None]


def _traces(results: Results, columns: dict[str, str], *, traces: tuple[str, ...] = ()) -> str:
    rows = []
    for name in traces or results["reuse"]["traces"]:
        cells = [percent(_value(results, name, column, USUAL)) for column in columns]
        rows.append([name, f"{results['reuse']['traces'][name]['contexts']:,}", *cells])
    return table(["trace", "contexts", *columns.values()], rows)


def _value(results: Results, name: str, column: str, cache: str) -> float | None:
    row = results["reuse"]["traces"][name]
    if column == "upper_bound":
        value: float | None = row["upper_bound"]
    elif column.startswith("peer_"):
        reuse = results["peer"]["traces"][name][column.removeprefix("peer_")]["reuse"]
        value = None if reuse is None else reuse[cache]
    else:
        value = row["arms"][column][cache]
    return value
