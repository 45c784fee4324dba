"""Tables of time, memory, conversations and real engines: all results by name in, Markdown out."""

from statistics import median
from typing import Any

from benchmarks.markdown import percent, ratio, table

Results = dict[str, Any]


def scaling(results: Results) -> str:
    """Batches: CPU time and memory."""
    peer = results["peer_scaling"]
    limits = {"too slow": f"not done after {peer['limit_seconds']} s", "MemoryError": f"over {peer['limit_gb']} GB"}
    rows = []
    for size, row in results["scaling"]["plan_batch"].items():
        other = peer["plan_batch"].get(size)
        if other is None:
            cells = ["-", "-", "-"]
        elif "error" in other:
            cells = [limits[other["error"]], "-", "-"]
        else:
            times = ratio(other["cpu_seconds"] / row["cpu_seconds"])
            cells = [f"{other['cpu_seconds']:.1f} s", f"{other['peak_rss_mb']:,.0f} MB", times]
        rows.append([f"{int(size):,}", f"{row['cpu_seconds']:.2f} s", f"{row['peak_rss_mb']:,.0f} MB", *cells])
    head = ["contexts", "**ours**, CPU", "**ours**, peak memory", "0.5.0, CPU", "0.5.0, peak memory", "0.5.0 / ours"]
    return table(head, rows)


def latency(results: Results) -> str:
    """One plan, by what is live."""
    peer = results["peer_latency"]
    beyond = f"raises `{peer['error'].split(':')[0]}` at request {peer['planned']:,}" if peer["error"] else "-"
    rows = []
    for live, row in results["scaling"]["latency"].items():
        other = peer["live"].get(live)
        cells = [_times(other), ratio(other["p50_us"] / row["p50_us"])] if other else [beyond, "-"]
        beyond = beyond if other else "-"
        rows.append([f"{int(live):,}", _times(row), *cells])
    return table(["live contexts", "**ours**", "0.5.0", "0.5.0 / ours, median"], rows)


def steps(results: Results) -> str:
    """What one plan consists of."""
    figures = results["scaling"]
    rows = [
        [f"match and order, {int(size):,} live contexts", _times(row)]
        for size, row in figures["match_and_order"].items()
    ]
    rows.append(["`engine.plan`, 15 blocks of 340 characters", _times(figures["plan"]["plan"])])
    rows.append(["`engine.plan` and its messages", _times(figures["plan"]["plan_and_render"])])
    return table(["what", "time"], rows)


def overhead(results: Results) -> str:
    """Nothing to gain: what does it cost?"""
    head = ["trace", "requests", "documents met before", "retrieval order", "**ours**, net of the notes"]
    head += ["note tokens", "of all tokens", "time per plan, median"]
    rows = []
    for name, row in results["overhead"]["traces"].items():
        cells = [percent(row[key]) for key in ("met_before", "plain", "ours_net")]
        notes = [f"{row['note_tokens']:,}", f"{row['note_tokens'] / row['tokens']:.3%}"]
        rows.append([name, f"{row['contexts']:,}", *cells, *notes, f"{row['plan_us_p50'] / 1000:.2f} ms"])
    return table(head, rows)


def conversations(results: Results) -> str:
    """Tokens of the messages that carry documents, and documents that the prompt does not show."""
    rows = []
    for name, histories in results["conversations"]["traces"].items():
        for history, arms in histories.items():
            plain = arms["plain"]
            cells = [f"{plain['tokens']:,}"]
            for arm in ("ours", "peer"):
                cells += [percent(1 - arms[arm]["tokens"] / plain["tokens"]), f"{arms[arm]['lost']:,}"]
            rows.append([name, history, f"{plain['documents']:,}", *cells])
    head = ["trace", "history sent", "documents", "tokens, all sent again", "**ours** saves %", "lost"]
    return table([*head, "0.5.0 saves %", "lost"], rows)


def engines(results: Results) -> str:
    """Real engines: medians over the rounds, and their range."""
    rows = []
    for measured in (results["vllm"], results["llama_cpp"]):
        for kind, arms in measured["traffic"].items():
            for arm, rounds in arms.items():
                shown = f"**{arm}**" if arm == "ours" else arm
                rows.append([measured["engine"], kind, shown, *_engine_row(arms["plain"], rounds)])
    head = ["engine", "traffic", "arm", "prompt tokens", "cached", "prefilled", "median TTFT, s"]
    return table([*head, "tokens/s", "promised", "measured"], rows)


def _engine_row(plain: list[dict[str, Any]], rounds: list[dict[str, Any]]) -> list[str]:
    counts = [round(median(row[key] for row in rounds)) for key in ("prompt_tokens", "cached_tokens")]
    prefilled = counts[0] - counts[1]
    promised = median(row["prompt_tokens"] - row["cached_tokens"] for row in plain) / prefilled
    measured = [before["ttft_ms_sum"] / row["ttft_ms_sum"] for before, row in zip(plain, rounds, strict=True)]
    waits = [row["ttft_ms_median"] / 1000 for row in rounds]
    rates = [row["prompt_tokens"] / row["seconds"] for row in rounds]
    return [
        *[f"{count:,}" for count in (*counts, prefilled)],
        f"{median(waits):.2f} ({min(waits):.2f}-{max(waits):.2f})",
        f"{median(rates):.0f} ({min(rates):.0f}-{max(rates):.0f})",
        ratio(promised),
        f"{ratio(median(measured))} ({min(measured):.2f}-{max(measured):.2f})",
    ]


def demo(results: Results) -> str:
    """What the demo measured with a real model."""
    names = {"plain": "plain", "plain_append_only": "plain, append-only history", "contextpilot": "**ContextPilot**"}
    rows = []
    for seed, jobs in results["demo"]["seeds"].items():
        for job, arms in jobs.items():
            for arm, row in arms.items():
                counts = [f"{row[key]:,}" for key in ("requests", "prompt_tokens", "cached_tokens", "prefilled_tokens")]
                rows.append([job, seed, names[arm], *counts, f"{row['ttft_ms_median'] / 1000:.1f} s"])
    head = ["job", "seed", "arm", "requests", "prompt tokens", "cached", "prefilled", "median TTFT"]
    return table(head, rows)


def _times(row: dict[str, float]) -> str:
    unit, scale = ("us", 1) if row["p99_us"] < 10_000 else ("ms", 1000)
    return f"p50 {row['p50_us'] / scale:,.0f} {unit}, p99 {row['p99_us'] / scale:,.0f} {unit}"
