"""Configuration: defaults, and an error for every value outside its rule."""

import copy
import dataclasses
import pickle

import pytest

from contextpilot_core import ConfigError, EngineConfig


def test_defaults():
    config = EngineConfig()
    assert (config.cache_tokens, config.kv_block, config.in_flight_seconds, config.note) == (40_000, 16, 60, "compact")
    assert config.strategy == "greedy"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.note = "full"  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "best"},
        {"schedule": "random"},
        {"note": "long"},
        {"linkage": "ward"},
        {"cache_tokens": 0},
        {"cache_tokens": 1.5},
        {"quotas": 5},
        {"quotas": {1: 5}},
        {"quotas": {"tenant": 0}},
        {"kv_block": 0},
        {"kv_block": True},
        {"max_visits": 0},
        {"max_requests": -1},
        {"max_messages": "9"},
        {"in_flight_seconds": 0},
        {"in_flight_seconds": float("nan")},
        {"message_seconds": None},
        {"alpha": 0.5},
        {"hint": ""},
        {"span_hint": "a\nb"},
        {"budget": 3},
        {"pinned": 3},
        {"budget": 3, "pinned": 4},
        {"pinned": 0, "budget": 0},
    ],
)
def test_values_outside_their_rule_name_themselves(fields: dict[str, object]):
    with pytest.raises(ConfigError, match=next(reversed(fields))):
        EngineConfig(**fields)  # type: ignore[arg-type]


def test_quotas_are_a_copy_and_belong_to_their_namespace():
    quotas = {"small": 500}
    config = EngineConfig(cache_tokens=None, quotas=quotas)
    quotas["small"] = 1
    assert config.of("small").cache_tokens == 500
    assert config.of("other") is config
    assert hash(config) == hash(EngineConfig(cache_tokens=None))
    assert copy.deepcopy(pickle.loads(pickle.dumps(config))) == config
