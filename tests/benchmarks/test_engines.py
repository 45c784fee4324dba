"""Rounds before a real engine, and the table of what they measured."""

from dataclasses import dataclass, field

import pytest

from benchmarks.engines import GREETING, _rounds, llama_cpp
from benchmarks.tables_cost import engines
from contextpilot_integrations.demo.endpoint import Endpoint
from tests.conftest import require_local_model


@dataclass(frozen=True, kw_only=True)
class Listening(Endpoint):
    """Passes everything on to the engine, and keeps what it was asked."""

    heard: list = field(default_factory=list)

    def ask(self, messages):
        self.heard.append(messages)
        return super().ask(messages)


@pytest.fixture(scope="module")
def endpoint():
    require_local_model()
    with llama_cpp() as (running, _):
        yield running


def prompt(word):
    return ({"role": "user", "content": f"{word} " * 40},)


ARMS = {"plain": [prompt("tea"), prompt("milk")], "ours": [prompt("tea"), prompt("tea")]}


def test_arms_take_turns_on_an_emptied_engine(endpoint):
    steps = []
    listening = Listening(**vars(endpoint))
    measured = _rounds(listening, ARMS, 2, lambda: steps.append(None))
    plain, ours = ([GREETING, *ARMS[arm]] for arm in ("plain", "ours"))
    assert listening.heard == [*plain, *ours, *ours, *plain]
    assert len(steps) == 4
    for first, second in measured.values():  # the second round found nothing of the first
        assert first["cached_tokens"] == second["cached_tokens"]
        assert first["requests"] == 2
        assert first["unreported"] == 0
        assert 0 < first["ttft_ms_median"] < first["ttft_ms_sum"] < first["seconds"] * 1000
    assert measured["ours"][0]["cached_tokens"] > measured["plain"][0]["cached_tokens"] + 30


def one_round(cached, ttft_ms):
    return {
        "prompt_tokens": 1_000,
        "cached_tokens": cached,
        "seconds": 2.0,
        "ttft_ms_median": ttft_ms / 2,
        "ttft_ms_sum": ttft_ms,
    }


def test_the_table_sets_the_measured_gain_beside_the_promised_one():
    arms = {"plain": [one_round(200, 900.0)] * 3, "ours": [one_round(600, each) for each in (450.0, 500.0, 600.0)]}
    made = engines({name: {"engine": name, "traffic": {"hybrid": arms}} for name in ("vllm", "llama_cpp")})
    plain, ours, *_ = (line.split(" | ") for line in made.splitlines()[2:])
    assert plain[3:6] == ["1,000", "200", "800"]
    assert ours[3:6] == ["1,000", "600", "400"]
    assert plain[8:] == ["1.00x", "1.00x (1.00-1.00) |"]
    assert ours[6:] == ["0.25 (0.23-0.30)", "500 (500-500)", "2.00x", "1.80x (1.50-2.00) |"]
