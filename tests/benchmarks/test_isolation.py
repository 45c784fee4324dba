"""Two tenants are told nothing of each other: the short form of ``make bench ARGS=reliability``."""

import logging
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import require

for package in ("prometheus_client", "openai", "httpx"):
    require(package)

from benchmarks.isolation import TENANTS, EngineWorld, WindowWorld, differences  # noqa: E402
from benchmarks.isolation_clients import ClientWorld, RouterWorld, routed_differences  # noqa: E402
from contextpilot_core.engine.namespaces import Namespaces  # noqa: E402
from contextpilot_core.mirror.reports import CacheReports  # noqa: E402
from contextpilot_integrations.recent import Recent  # noqa: E402

seeds = st.integers(0, 2**32)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_engine(seed):
    assert list(differences(EngineWorld, seed)) == []


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_window(seed):
    assert list(differences(WindowWorld, seed)) == []


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_client(seed):
    assert list(differences(ClientWorld, seed)) == []


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_router(seed):
    assert routed_differences(seed) == []


def leaks(world, seeds=60):
    return any(list(differences(world, seed)) for seed in range(seeds))


def test_ids_that_all_share_would_be_seen(monkeypatch):
    numbers = {}
    monkeypatch.setattr(Namespaces, "_new_ids", lambda self: map("r{}".format, numbers.setdefault(id(self), count(1))))
    assert leaks(EngineWorld)


def test_an_alarm_that_all_share_would_be_seen(monkeypatch):
    monkeypatch.setattr(CacheReports, "part", lambda self: self)
    assert leaks(EngineWorld, 300)


def test_sessions_that_all_share_would_be_seen(monkeypatch):
    made = Recent.__init__
    monkeypatch.setattr(
        Recent, "__init__", lambda self, limit, in_use=lambda key: False, group=None: made(self, limit, in_use)
    )
    assert leaks(ClientWorld)


def test_the_programs_reach_what_they_are_for():
    """Plans that move, hints, reuse, events that are believed, refusals, a session at both servers."""
    worlds = [EngineWorld(seed, TENANTS) for seed in range(40)]
    for seed, world in enumerate(worlds):
        world.play(world.program(seed))
    plans = [plan for world in worlds for mine in world.plans.values() for plan in mine]
    assert any(plan.moved for plan in plans)
    assert any(plan.hints for plan in plans)
    assert any(plan.expected_reused_tokens for plan in plans)
    assert any(world.engine.stats().source == "events" for world in worlds)
    routed = [RouterWorld(seed, TENANTS) for seed in range(20)]
    told = [
        line
        for seed, world in enumerate(routed)
        for lines in world.play(world.program(seed)).values()
        for line in lines
    ]
    assert {number for world in routed for chosen in world.choices.values() for number in chosen} >= {0, 1}
    assert any("NotFoundError" in line for line in told)
