"""Rounds before a real engine, with one that only notes what it is told."""

from types import SimpleNamespace

from benchmarks.engines import GREETING, _rounds
from benchmarks.tables_cost import engines
from contextpilot_integrations.serving.usage import Usage


class Engine:
    """Caches a prompt that it has seen since it was emptied; an answer to a prompt takes as many milliseconds."""

    def __init__(self):
        self.heard, self.cached = [], set()

    def clear(self):
        self.heard.append("clear")
        self.cached.clear()

    def ask(self, prompt):
        self.heard.append(prompt)
        tokens = len(prompt[0]["content"])
        cached = tokens - 1 if str(prompt) in self.cached else 0
        self.cached.add(str(prompt))
        return SimpleNamespace(usage=Usage(prompt_tokens=tokens, cached_tokens=cached), ttft_ms=float(tokens - cached))


def prompt(text):
    return ({"role": "user", "content": text},)


ARMS = {"plain": [prompt("x" * 10), prompt("y" * 10)], "ours": [prompt("x" * 10), prompt("x" * 10)]}


def test_arms_take_turns_on_an_emptied_engine():
    engine, steps = Engine(), []
    measured = _rounds(engine, ARMS, 2, lambda: steps.append(None))
    begin = ["clear", GREETING]
    plain, ours = ([*begin, *ARMS[arm]] for arm in ("plain", "ours"))
    assert engine.heard == [*plain, *ours, *ours, *plain]
    assert len(steps) == 4
    assert [row["cached_tokens"] for row in measured["plain"]] == [0, 0]
    assert [row["cached_tokens"] for row in measured["ours"]] == [9, 9]


def test_the_table_sets_the_measured_gain_beside_the_promised_one():
    measured = _rounds(Engine(), ARMS, 2, lambda: None)
    made = engines({name: {"engine": name, "traffic": {"hybrid": measured}} for name in ("vllm", "llama_cpp")})
    plain, ours = (line.split(" | ") for line in made.splitlines()[2:4])
    assert plain[3:6] == ["20", "0", "20"]
    assert ours[3:6] == ["20", "9", "11"]
    assert plain[8] == "1.00x"
    assert ours[8] == "1.82x"
    assert ours[9] == "1.82x (1.82-1.82) |"
