"""Tables of answer quality: all results by name in, Markdown out."""

from typing import Any

from benchmarks.markdown import table

Results = dict[str, Any]


def order(results: Results) -> str:
    """Log-likelihood per token of the gold answer, by arm and dataset."""
    groups = {name: metrics["log_likelihood"] for name, metrics in results["quality"]["order"].items()}
    return _table({f"{name}, {_asked(judged)}": judged for name, judged in groups.items()})


def deduplication(results: Results) -> str:
    """The same for documents that a conversation shows already."""
    judged = results["quality"]["deduplication"]["log_likelihood"]
    return _table({f"mtrag, {_asked(judged)}": judged})


def answers(results: Results) -> str:
    """What the model answers by itself."""
    f1, exact = (results["quality"]["order"]["all"][metric] for metric in ("f1", "exact"))
    rows = [[f1["baseline"], f"{f1['score']:.3f}", "", f"{exact['score']:.3f}", ""]]
    for one, other in zip(f1["comparisons"], exact["comparisons"], strict=True):
        rows.append([one["arm"], f"{one['score']:.3f}", _interval(one), f"{other['score']:.3f}", _interval(other)])
    return table([f"n = {f1['questions']}", "F1", "difference", "exact match", "difference"], rows)


def plain(results: Results) -> str:
    """Plain questions: exact match and log-likelihood by arm."""
    return _two_metrics(results["plain"]["order"]["all"])


def plain_places(results: Results) -> str:
    """Plain questions: exact match by rank and place of the passage that answers."""
    groups = {name: metrics["exact"] for name, metrics in results["plain"]["order"].items() if name != "all"}
    first = next(iter(groups.values()))
    rows = [[first["baseline"], *[f"{judged['score']:.3f}" for judged in groups.values()]]]
    for compared in zip(*[judged["comparisons"] for judged in groups.values()], strict=True):
        rows.append([compared[0]["arm"], *map(_interval, compared)])
    return table(["arm", *[f"{name}, {_asked(judged)}" for name, judged in groups.items()]], rows[:-1])


def plain_right(results: Results) -> str:
    """Plain questions: how many are answered rightly, by the place of the passage that answers."""
    arms = results["plain"]["right_by_place"]
    places = sorted({place for found in arms.values() for place in found})
    rows = [
        [arm, *[f"{found[place][1] / found[place][0]:.3f} of {found[place][0]}" for place in places]]
        for arm, found in arms.items()
    ]
    return table(["answering passage at place", *[str(int(place) + 1) for place in places]], rows)


def plain_notes(results: Results) -> str:
    """Plain questions: the engine's order with a note against the same order without."""
    return _two_metrics(results["plain"]["notes"], last=-1)


def plain_dedup(results: Results) -> str:
    """Plain questions after a turn that showed the passage that answers."""
    return _two_metrics(results["plain"]["deduplication"])


def _two_metrics(metrics: Results, last: int | None = None) -> str:
    exact, likelihood = metrics["exact"], metrics["log_likelihood"]
    rows = [[exact["baseline"], f"{exact['score']:.3f}", "", f"{likelihood['score']:.3f}", ""]]
    for one, other in list(zip(exact["comparisons"], likelihood["comparisons"], strict=True))[:last]:
        cell = _interval if one["arm"] == "no documents" else _finding
        rows.append([one["arm"], f"{one['score']:.3f}", cell(one), f"{other['score']:.3f}", cell(other)])
    return table([_asked(exact), "exact match", "difference", "log-likelihood", "difference"], rows)


def _table(groups: dict[str, Any]) -> str:
    """Return a row per arm; the largest loss is that of the last group."""
    *_, last = groups.values()
    rows = [[last["baseline"], *[f"{judged['score']:.3f}" for judged in groups.values()], ""]]
    for place, each in enumerate(last["comparisons"][:-1]):
        compared = [judged["comparisons"][place] for judged in groups.values()]
        loss = max(0.0, -each["difference"]["low"])
        rows.append([each["arm"], *map(_finding, compared), f"{loss:.3f} ({loss / last['worth']:.0%})"])
    # The arm without documents shows what they bring.
    without = [judged["comparisons"][-1] for judged in groups.values()]
    rows.append([without[-1]["arm"], *map(_interval, without), ""])
    return table(["arm", *groups, "may lose"], rows)


def _asked(judged: Results) -> str:
    return f"n = {judged['questions']} in {judged['comparisons'][0]['difference']['clusters']} clusters"


def _finding(comparison: Results) -> str:
    finding = comparison["finding"]
    return _interval(comparison) + ("" if finding == "open" else f", **{finding}**")


def _interval(comparison: Results) -> str:
    paired = comparison["difference"]
    return f"{paired['mean']:+.3f} ({paired['low']:+.3f} to {paired['high']:+.3f})"
