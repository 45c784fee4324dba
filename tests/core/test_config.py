"""Configuration: defaults, and an error for every value outside its rule."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from contextpilot_core import ConfigError, EngineConfig


def test_defaults():
    config = EngineConfig()
    assert (config.cache_tokens, config.kv_block, config.in_flight_seconds, config.note) == (40_000, 16, 60, "none")
    assert config.strategy == "greedy"
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.note = "full"  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cache_tokens": None, "quotas": None},
        {"quotas": {}},
        {"budget": 3, "pinned": 0},
        {"budget": 3, "pinned": 3},
        {"alpha": 0.01, "in_flight_seconds": 1, "message_seconds": float("inf")},
        {"renderer": str, "hint": "{label}", "unlabelled_hint": "no number", "span_hint": "{label} {label}"},
        {"strategy": "paper", "schedule": "arrival", "note": "none", "linkage": "single", "dedup": False},
    ],
)
def test_values_inside_their_rule_stay_as_they_are(fields: dict[str, Any]):
    config = EngineConfig(**fields)
    assert {name: getattr(config, name) for name in fields} == fields
    assert dataclasses.replace(config) == config


def test_every_field_is_explained():
    said = (EngineConfig.__doc__ or "").split("Attributes:")[1]
    assert [line.split(":")[0].strip() for line in said.strip().splitlines()] == [
        field.name for field in dataclasses.fields(EngineConfig)
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"strategy": "best"}, "'best' is not one of 'greedy', 'paper', 'none'; choose"),
        ({"kv_block": True}, "kv_block=True must be a whole number of at least 1; 16 is usual"),
        ({"cache_tokens": 0}, "cache_tokens=0 must be .* of at least 1; give the server's cache size, or None"),
        ({"in_flight_seconds": -1}, "in_flight_seconds=-1 must be a number above 0; give seconds, 60 is usual"),
        ({"alpha": 1}, "alpha=1 must be a number of at least 0.001 and of at most 0.01; 0.001 is usual"),
        ({"quotas": {"t": 0}}, r"quotas\['t'\]=0 must be a whole number of at least 1; .* leave its namespace out"),
        ({"quotas": [("t", 5)]}, "quotas is a list; it must map namespaces"),
        ({"budget": 3}, "budget=3 and pinned=None belong together; give both or neither"),
        ({"budget": 3, "pinned": 4}, "pinned=4 must be a whole number from 0 to 3"),
        ({"hint": "see above"}, r"hint='see above' must hold '\{label\}', or the hint names nothing"),
        ({"span_hint": "a\nb"}, "must be one line of text"),
        ({"dedup": 1}, "dedup=1 must be True or False; False sends repeats again"),
        ({"renderer": "x"}, "renderer='x' must be a function of a block, or None"),
    ],
)
def test_an_error_says_value_rule_and_fix(fields: dict[str, Any], words: str):
    with pytest.raises(ConfigError, match=words):
        EngineConfig(**fields)


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
        {"max_visits": 2.0},
        {"in_flight_seconds": 0},
        {"in_flight_seconds": True},
        {"in_flight_seconds": 10**400},
        {"message_seconds": 10**5000},
        {"cache_tokens": 10**400},
        {"cache_tokens": 10**5000},
        {"quotas": {"tenant": 10**5000}},
        {"max_messages": 10**400},
        {"pinned": 1, "budget": 10**5000},
        {"alpha": "x"},
        {"strategy": ["greedy"]},
        {"hint": "a\r{label}"},
        {"hint": "a\u2028{label}"},
        {"in_flight_seconds": float("nan")},
        {"message_seconds": None},
        {"message_seconds": "60"},
        {"alpha": 0.5},
        {"alpha": 0.0005},
        {"dedup": "no"},
        {"span_dedup": None},
        {"renderer": 5},
        {"hint": ""},
        {"hint": None},
        {"hint": "see above"},
        {"span_hint": "a\nb {label}"},
        {"span_hint": "{labels}"},
        {"unlabelled_hint": " "},
        {"budget": 3},
        {"pinned": 3},
        {"budget": 3, "pinned": 4},
        {"pinned": 0, "budget": 0},
        {"budget": 3, "pinned": -1},
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
