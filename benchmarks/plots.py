"""Draw the committed results: every picture as SVG for light and for dark pages, under ``benchmarks/plots``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  # after the choice of the backend
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

from benchmarks.scoring import USUAL  # noqa: E402

Results = dict[str, Any]
PAGES = {"light": ("#1f2328", "#d1d9e0"), "dark": ("#e6edf3", "#3d444d")}
"""Page -> colours of the text and of the grid; the background is transparent."""
COLOURS = {"plain": "#8b949e", "ggr": "#2da44e", "peer": "#3b82f6", "ours": "#f0683c"}
COLOURS |= {"peer_window": "#a371f7", "window": "#d4a017"}
LABELS = {"plain": "retrieval order", "ggr": "GGR", "peer": "contextpilot 0.5.0", "ours": "ours"}


def draw(results: Results, folder: Path) -> None:
    """Draw every picture whose results are there."""
    folder.mkdir(exist_ok=True)
    for name, (sources, make) in PICTURES.items():
        if all(source in results for source in sources):
            for page in PAGES:
                with _style(page):
                    figure = make(results)
                    figure.savefig(folder / f"{name}-{page}.svg", transparent=True, metadata={"Date": None})
                    plt.close(figure)


def reuse_by_trace(results: Results) -> Figure:
    """One row per trace; batch on the left, one by one on the right."""
    traces = results["reuse"]["traces"]
    names = sorted(traces, key=lambda name: traces[name]["arms"]["ours_offline"][USUAL])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 7.4), sharey=True)
    for axes, title, mode, peer_mode, others in (
        (left, "as a batch", "offline", "offline", ("plain", "ggr")),
        (right, "one by one", "online", "online_synced", ("plain",)),
    ):
        rows = {LABELS[arm]: (arm, [traces[name]["arms"][arm][USUAL] for name in names]) for arm in others}
        rows[LABELS["peer"]] = ("peer", [_peer(results, name, peer_mode) for name in names])
        if mode == "online":
            rows["0.5.0, 32 waiting"] = ("peer_window", [_peer(results, name, "window_32") for name in names])
            rows["ours, 32 waiting"] = ("window", [traces[name]["arms"]["ours_window_32"][USUAL] for name in names])
        rows[LABELS["ours"]] = ("ours", [traces[name]["arms"][f"ours_{mode}"][USUAL] for name in names])
        for label, (colour, values) in rows.items():
            axes.plot([100 * value for value in values], range(len(names)), "o", color=COLOURS[colour], label=label)
        if mode == "offline":
            bound = [100 * traces[name]["upper_bound"] for name in names]
            axes.plot(bound, range(len(names)), "|", color=COLOURS["plain"], markersize=9, label="bound")
        axes.set(title=title, xlabel="per cent of document tokens found in the cache", xlim=(-1, None))
        axes.legend(loc="lower right")
    left.set_yticks(range(len(names)), [_short(name) for name in names])
    left.set_ylim(-0.7, len(names) - 0.3)
    return figure


def reuse_over_time(results: Results) -> Figure:
    """Reuse of the requests between two points in time (the paper's figure 12)."""

    def rate(curve: dict[str, list[int]]) -> tuple[Sequence[float], Sequence[float]]:
        spans = [(first, first + 6) for first in range(len(curve["requests"]) - 6)]
        shares = [
            100 * (curve["reused"][last] - curve["reused"][first]) / (curve["tokens"][last] - curve["tokens"][first])
            for first, last in spans
        ]
        return [curve["requests"][last] for _, last in spans], shares

    return _curves(results, rate, "per cent reused, last tenth of the requests")


def cached_tokens(results: Results) -> Figure:
    """Tokens found in the cache since the start (the paper's figure 13)."""

    def total(curve: dict[str, list[int]]) -> tuple[Sequence[float], Sequence[float]]:
        return curve["requests"], [tokens / 1e6 for tokens in curve["reused"]]

    return _curves(results, total, "million tokens found in the cache")


def scaling(results: Results) -> Figure:
    """Time and memory of a batch."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8))
    for arm, part in (("ours", "scaling"), ("peer", "peer_scaling")):
        rows = {int(size): row for size, row in results[part]["plan_batch"].items() if "error" not in row}
        for place, key, label in ((axes[0], "cpu_seconds", "CPU seconds"), (axes[1], "peak_rss_mb", "peak memory, MB")):
            values = [row[key] for row in rows.values()]
            place.loglog(list(rows), values, "o-", color=COLOURS[arm], label=LABELS[arm])
            place.set(title=label, xlabel="contexts in the batch")
    for place in axes:
        _plain_numbers(place)
    axes[0].legend(loc="lower right")
    return figure


def latency(results: Results) -> Figure:
    """Time of one plan against the number of live contexts: median, up to the 99th percentile."""
    figure, axes = plt.subplots(figsize=(7, 3.8))
    for arm, rows in (("ours", results["scaling"]["latency"]), ("peer", results["peer_latency"]["live"])):
        live = [int(number) for number in rows]
        low, high = ([row[key] for row in rows.values()] for key in ("p50_us", "p99_us"))
        axes.loglog(live, low, "o-", color=COLOURS[arm], label=LABELS[arm])
        axes.fill_between(live, low, high, color=COLOURS[arm], alpha=0.18, linewidth=0)
    axes.set(title="CPU microseconds per request, median to 99th percentile", xlabel="live contexts", ylim=(100, None))
    _plain_numbers(axes)
    axes.legend(loc="best")
    return figure


PICTURES: dict[str, tuple[tuple[str, ...], Callable[[Results], Figure]]] = {
    "reuse_by_trace": (("reuse", "peer"), reuse_by_trace),
    "reuse_over_time": (("reuse", "peer"), reuse_over_time),
    "cached_tokens": (("reuse", "peer"), cached_tokens),
    "scaling": (("scaling", "peer_scaling"), scaling),
    "latency": (("scaling", "peer_latency"), latency),
}
"""name of the picture -> (results files that it needs, what draws it)"""


def _curves(
    results: Results, make: Callable[[dict[str, list[int]]], tuple[Sequence[float], Sequence[float]]], label: str
) -> Figure:
    traces = results["reuse"]["curves"]
    figure, all_axes = plt.subplots(1, len(traces), figsize=(10, 3.8))
    for axes, (name, arms) in zip(all_axes, traces.items(), strict=True):
        peer = results["peer"]["traces"][name]
        for text, colour, line, curve in (
            ("retrieval order", "plain", "-", arms["plain"]),
            ("GGR, batch", "ggr", "-", arms["ggr"]),
            ("0.5.0, one by one", "peer", ":", peer["online_synced"]["curve"]),
            ("0.5.0, batch", "peer", "-", peer["offline"]["curve"]),
            ("0.5.0, 32 waiting", "peer_window", "-", peer["window_32"]["curve"]),
            ("ours, one by one", "ours", ":", arms["ours_online"]),
            ("ours, 32 waiting", "window", "-", arms["ours_window_32"]),
            ("ours, batch", "ours", "-", arms["ours_offline"]),
        ):
            axes.plot(*make(curve), line, color=COLOURS[colour], label=text)
        axes.set(title=name, xlabel="requests", xlim=(0, None), ylim=(0, None))
    all_axes[0].set_ylabel(label)
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _peer(results: Results, name: str, mode: str) -> float:
    reuse = results["peer"]["traces"][name][mode]["reuse"]
    return float("nan") if reuse is None else reuse[USUAL]


def _short(name: str) -> str:
    for long, short in ((".trace.", " "), (".conversations.", " "), ("_official_sample", " sample")):
        name = name.replace(long, short)
    return name


def _plain_numbers(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())


@contextmanager
def _style(page: str) -> Iterator[None]:
    text, grid = PAGES[page]
    style = {
        "figure.constrained_layout.use": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "contextpilot",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "grid.color": grid,
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "legend.frameon": False,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), text),
        "axes.edgecolor": grid,
    }
    with plt.rc_context(style):
        yield
