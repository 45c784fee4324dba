"""Predicted against reported: what a prediction relies on, when events are given up, and what is said of it."""

import logging

import pytest

from contextpilot_core.cache.blocks import BlockTable
from contextpilot_core.cache.estimate import CacheView
from contextpilot_core.config import EngineConfig
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.mirror.reports import CacheReports
from contextpilot_core.mirror.view import TruthView
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import Observation, PromptTokens, Served
from tests.core.kv_engine import SIZE, Engine

PROMPT = list(range(5 * SIZE + 1))


def make(mirror: KVMirror | None = None, **config: object) -> CacheReports:
    return CacheReports(EngineConfig(**config), mirror, ManualClock())  # type: ignore[arg-type]


def serve(engine: Engine, mirror: KVMirror, tokens: list[int], salt: str | None = None) -> None:
    engine.admit(tokens, salt)
    mirror.apply(engine.take())


def served(reported: int | None, tokens: list[int] = PROMPT, salt: str | None = None) -> Served:
    return Served(
        prompt_tokens=len(tokens),
        cached_tokens=reported,
        tokens=PromptTokens(token_ids=tokens),
        cache_salt=salt,
    )


def test_without_a_mirror_there_is_the_estimate_only():
    reports, blocks = make(), BlockTable()
    estimate = CacheView(blocks, capacity=None, max_requests=9)
    assert reports.view(estimate, blocks) is estimate
    assert (reports.follows_events, reports.source, reports.moment, reports.drift) == (False, "estimate", None, None)
    assert reports.keys(served(0)) == ()
    assert reports.block_size == EngineConfig().kv_block


def test_a_mirror_brings_a_view_that_is_on_the_truth_while_it_is_believed():
    mirror, blocks = KVMirror(SIZE), BlockTable()
    reports = make(mirror)
    view = reports.view(CacheView(blocks, capacity=None, max_requests=9), blocks)
    assert isinstance(view, TruthView)
    [block] = blocks.intern_path([(b"a", 5)])
    view.admit((block,), "r")
    assert view.record("r", 1, mirror.keys(PROMPT), [0, 5])
    assert (view.on_truth, reports.source, reports.moment) == (True, "events", mirror.moment)
    mirror.suspend("a gap")
    assert (view.on_truth, reports.source, reports.moment) == (False, "estimate", None)


@pytest.mark.parametrize(
    ("share", "prompt_tokens", "predicted"),
    [(0.5, 100, 48), (0.5, 31, 0), (1.0, 64, 64), (0.0, 64, 0), (0.5, None, None)],
)
def test_an_estimate_predicts_whole_kv_blocks_of_its_share(share: float, prompt_tokens: int | None, predicted: object):
    found = make(kv_block=16).observe(None, share, Served(prompt_tokens=prompt_tokens, cached_tokens=16))
    assert found == Observation(predicted=predicted, reported=16, source="estimate")  # type: ignore[arg-type]


@pytest.mark.parametrize(("prompt_tokens", "reported"), [(100, 100), (0, 0), (None, 10**15)])
def test_more_than_the_prompt_is_never_reported(prompt_tokens: int | None, reported: int):
    observation = make().observe(None, 0.5, Served(prompt_tokens=prompt_tokens, cached_tokens=10**15))
    assert observation.reported == reported


def test_events_predict_what_was_cached_when_the_request_was_planned():
    engine, mirror = Engine(), KVMirror()
    reports = make(mirror)
    before = reports.moment
    serve(engine, mirror, PROMPT, "tenant")
    assert reports.block_size == SIZE
    planned = reports.moment
    engine.reset()
    mirror.apply(engine.take())
    mirror.apply([])
    serve(engine, mirror, [7] * SIZE)  # the engine's block size is known again
    for moment, salt, predicted in (
        (before, "tenant", 0),
        (planned, "tenant", 5 * SIZE),
        (planned, None, 0),
        (reports.moment, "tenant", 0),
    ):
        found = reports.observe(moment, 0.9, served(0, salt=salt))
        assert (found.predicted, found.source) == (predicted, "events")


def test_keys_are_those_of_the_mirror_and_of_the_salt():
    mirror = KVMirror(SIZE)
    reports = make(mirror)
    assert reports.keys(served(0, salt="tenant")) == mirror.keys(PROMPT, salt="tenant")
    assert reports.keys(Served(prompt_tokens=9)) == ()


@pytest.mark.parametrize("unknown", ["moment", "tokens", "mirror"])
def test_where_events_say_nothing_sure_the_estimate_predicts(unknown: str):
    mirror = KVMirror(SIZE)
    reports, moment, what = make(mirror, kv_block=8), mirror.moment, served(0)
    if unknown == "moment":
        moment = None
    elif unknown == "tokens":
        what = Served(prompt_tokens=len(PROMPT), cached_tokens=0)
    else:
        mirror.suspend("a gap")
    found = reports.observe(moment, 0.5, what)
    assert (found.predicted, found.source) == (8, "estimate")  # half of 21, in the mirror's blocks of 4


def test_events_that_stay_wrong_are_given_up_until_they_are_right_again(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="contextpilot_core")
    engine, mirror = Engine(), KVMirror()
    reports = make(mirror)
    serve(engine, mirror, PROMPT)
    for _ in range(10):
        assert reports.source == "events"
        reports.observe(mirror.moment, 0.0, served(0))
    assert reports.source == "estimate"
    assert reports.moment == mirror.moment  # predictions go on, to see when they are right again
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "(+20 tokens predicted minus reported, mean of the last requests): planning on the estimate" in caplog.text
    for _ in range(20):
        assert reports.source == "estimate"
        assert reports.drift is None  # of the estimate, which nothing was compared with
        reports.observe(mirror.moment, 0.0, served(5 * SIZE))
    assert (reports.source, reports.drift) == ("events", 0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_difference_of_one_kv_block_is_no_drift():
    engine, mirror = Engine(), KVMirror()
    reports = make(mirror)
    serve(engine, mirror, PROMPT)
    for _ in range(30):
        reports.observe(mirror.moment, 0.0, served(4 * SIZE))
    assert (reports.source, reports.drift) == ("events", SIZE)


@pytest.mark.parametrize(
    ("share", "reported", "words"),
    [
        (0.9, 0, "caches less than the estimate expects (+896 tokens predicted minus reported"),
        (0.0, 900, "caches more than the estimate expects (-900 tokens predicted minus reported"),
    ],
)
def test_an_estimate_that_stays_wrong_names_the_option(
    share: float, reported: int, words: str, caplog: pytest.LogCaptureFixture
):
    reports = make(cache_tokens=777)
    for _ in range(25):
        reports.observe(None, share, Served(prompt_tokens=1_000, cached_tokens=reported))
    assert words in caplog.text
    assert f"{'lower' if share else 'raise'} EngineConfig.cache_tokens=777" in caplog.text
    assert len(caplog.records) == 1


def test_an_estimate_may_be_off_by_a_quarter_of_the_prompt(caplog: pytest.LogCaptureFixture):
    reports = make(kv_block=1)
    for _ in range(25):
        reports.observe(None, 0.5, Served(prompt_tokens=1_000, cached_tokens=250))
    assert reports.drift == 250
    assert caplog.records == []


def test_a_server_that_reports_nothing_is_named_once_and_never_after_a_report(caplog: pytest.LogCaptureFixture):
    silent, speaking = make(), make()
    for _ in range(2):
        silent.observe(None, 0.5, Served(prompt_tokens=100))
        speaking.observe(None, 0.5, Served(prompt_tokens=100))
    assert caplog.records == []
    speaking.observe(None, 0.5, Served(prompt_tokens=100, cached_tokens=0))
    for _ in range(5):
        assert silent.observe(None, 0.5, Served(prompt_tokens=100)).reported is None
        speaking.observe(None, 0.5, Served(prompt_tokens=100))
    [record] = caplog.records
    assert "no cached tokens in 3 responses" in record.message
    assert "--enable-prompt-tokens-details" in record.message
    assert silent.drift is None


def test_every_part_judges_by_its_own_responses_and_the_whole_sums_up(caplog: pytest.LogCaptureFixture):
    engine, mirror = Engine(), KVMirror()
    whole = make(mirror)
    right, wrong = whole.part(), whole.part()
    serve(engine, mirror, PROMPT)
    for _ in range(30):
        wrong.observe(mirror.moment, 0.0, served(0))
        right.observe(mirror.moment, 0.0, served(5 * SIZE))
    assert (wrong.source, right.source) == ("estimate", "events")
    assert (right.drift, wrong.drift_of("events"), whole.drift_of("events")) == (0, 5 * SIZE, 5 * SIZE / 2)
    assert len(caplog.records) == 1
    for part in (right, wrong, right):
        part.observe(None, 0.5, Served(prompt_tokens=100))
    assert len(caplog.records) == 1  # the server does report
