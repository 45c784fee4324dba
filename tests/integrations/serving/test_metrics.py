"""The figures of engines in the text that a real Prometheus registry gives out."""

import gc
import subprocess
import sys

import pytest

from contextpilot_core import EngineConfig, KVMirror, ReuseEngine
from contextpilot_core.errors import ConfigError
from contextpilot_core.testing import ManualClock
from contextpilot_core.types import PromptTokens, Served
from tests.conftest import require

prometheus_client = require("prometheus_client")

from contextpilot_integrations.serving.metrics import EngineMetrics, hit_rate  # noqa: E402

TEXTS = [" ".join(f"{name}-{number}" for number in range(60)) for name in ("tea", "milk", "salt")]


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry(auto_describe=True)


def metrics(registry, **options):
    collector = EngineMetrics(**options)
    registry.register(collector)
    return collector


def lines(registry):
    text = prometheus_client.generate_latest(registry).decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_all_figures_of_an_engine(registry):
    clock = ManualClock()
    engine = ReuseEngine(EngineConfig(max_requests=1), clock=clock, observer=metrics(registry).meter("chat"))
    engine.plan(TEXTS[:2])
    plan = engine.plan(TEXTS[1::-1], commit=False)
    engine.observe(plan, Served(prompt_tokens=400, cached_tokens=160))
    engine.observe(plan, Served(prompt_tokens=400))
    stats, found = engine.stats(), lines(registry)
    expected = {
        "plans_total": 2,
        "block_tokens_total": stats.block_tokens,
        "hinted_tokens_total": 0,
        "evictions_total": 1,
        "responses_total": 1,
        "unreported_responses_total": 1,
        "prompt_tokens_total": 400,
        "predicted_tokens_total": stats.predicted_tokens,
        "reported_tokens_total": 160,
        "live_contexts": 1,
        "in_flight_plans": 1,
        "cached_tokens": stats.cached_tokens,
        "hit_rate": 0.4,
        "drift_tokens": stats.predicted_tokens - 160,
        "on_events": 0,
        "plan_seconds_count": 2,
    }
    assert stats.predicted_tokens > 0
    assert {name: float(found[f'contextpilot_{name}{{engine="chat"}}']) for name in expected} == expected
    buckets = [float(value) for name, value in found.items() if name.startswith("contextpilot_plan_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2


def test_unknown_is_absent_and_not_zero(registry):
    engine = ReuseEngine(observer=metrics(registry).meter())
    engine.observe(engine.plan(TEXTS), Served())
    found = lines(registry)
    assert 'contextpilot_live_contexts{engine="default"}' in found
    assert not [name for name in found if "hit_rate" in name or "drift" in name]


def test_engines_are_told_apart_and_need_names_of_their_own(registry):
    collector = metrics(registry)
    engines = [ReuseEngine(observer=collector.meter(name)) for name in ("replica 0", "replica 1")]
    for engine in engines:
        engine.plan(TEXTS)
    found = lines(registry)
    assert [found[f'contextpilot_plans_total{{engine="replica {number}"}}'] for number in (0, 1)] == ["1.0", "1.0"]
    with pytest.raises(ConfigError, match="name='replica 0' is taken"):
        ReuseEngine(observer=collector.meter("replica 0"))
    with pytest.raises(ConfigError, match="must be a str that is not empty"):
        collector.meter("")
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(EngineMetrics())


def test_the_name_of_an_engine_that_is_gone_is_free(registry):
    collector = metrics(registry)
    engine = ReuseEngine(observer=collector.meter("chat"))
    engine.plan(TEXTS)
    del engine
    gc.collect()
    assert 'contextpilot_live_contexts{engine="chat"}' not in lines(registry)
    another = ReuseEngine(observer=collector.meter("chat"))
    another.plan(TEXTS)
    assert lines(registry)['contextpilot_plans_total{engine="chat"}'] == "1.0"


def test_labels_hold_no_text_and_no_tenant_that_was_not_named(registry):
    engine = ReuseEngine(observer=metrics(registry, namespaces=["gold"]).meter())
    for number in range(50):
        plan = engine.plan(TEXTS, query="What does tea cost?", namespace=f"tenant-{number}", session_id="alice")
        engine.observe(plan, Served(prompt_tokens=500, cached_tokens=16))
    engine.plan(TEXTS, namespace="gold")
    text = prometheus_client.generate_latest(registry).decode()
    assert not [word for word in ("tenant-", "tea-", "What", "alice") if word in text]
    found = lines(registry)
    assert found['contextpilot_namespace_plans_total{engine="default",namespace="other"}'] == "50.0"
    assert found['contextpilot_namespace_plans_total{engine="default",namespace="gold"}'] == "1.0"
    assert found['contextpilot_namespace_reported_tokens_total{engine="default",namespace="other"}'] == "800.0"
    assert 'contextpilot_namespace_predicted_tokens_total{engine="default",namespace="other"}' in found


def test_without_names_there_is_no_label_for_namespaces(registry):
    engine = ReuseEngine(observer=metrics(registry).meter())
    engine.plan(TEXTS, namespace="gold")
    text = prometheus_client.generate_latest(registry).decode()
    assert not [word for word in ("namespace", "gold") if word in text]


@pytest.mark.parametrize("namespaces", ["gold", [""], [1]])
def test_namespaces_are_names(namespaces):
    with pytest.raises(ConfigError, match="namespaces must be a list"):
        EngineMetrics(namespaces=namespaces)


def test_a_gauge_tells_whether_plans_rely_on_events(registry):
    collector = metrics(registry)
    one, two = (ReuseEngine(mirror=KVMirror(block_size=16), observer=collector.meter(name)) for name in ("one", "two"))
    tokens = PromptTokens(token_ids=list(range(48)), start=0, ends=[16, 32])
    two.observe(two.plan(TEXTS[:2]), Served(prompt_tokens=48, tokens=tokens))
    one.plan(TEXTS[:2])
    found = lines(registry)
    assert [found[f'contextpilot_on_events{{engine="{name}"}}'] for name in ("one", "two")] == ["0.0", "1.0"]
    assert [engine.stats().source for engine in (one, two)] == ["estimate", "events"]


def test_the_hit_rate_is_unknown_before_the_first_report():
    engine = ReuseEngine()
    assert hit_rate(engine.stats()) is None
    plan = engine.plan(TEXTS)
    engine.observe(plan, Served(prompt_tokens=400, cached_tokens=0))
    assert hit_rate(engine.stats()) == 0.0
    engine.observe(engine.plan(TEXTS), Served(prompt_tokens=400, cached_tokens=200))
    assert hit_rate(engine.stats()) == 0.25
    for _ in range(9):
        engine.observe(engine.plan(TEXTS), Served(prompt_tokens=4, cached_tokens=10**9))
    assert 0 <= hit_rate(engine.stats()) <= 1


def test_without_the_package_the_extra_is_named():
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from contextpilot_core import MissingExtraError\n"
        "try: import contextpilot_integrations.serving.metrics\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "contextpilot-rag[metrics]"' in done.stdout
