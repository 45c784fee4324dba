"""Made-up answers and runs of the demo."""

from contextpilot_integrations.demo.results import Answer, Arm, Run

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


def made_up_run() -> Run:
    """Return three questions in two arms, and a chat of one turn in three; its texts try to break out of a page."""
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
