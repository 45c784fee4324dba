"""Salts: keyed, different by tenant, and never out of the hands of whoever holds the key (case V8)."""

import base64
import hashlib
import hmac
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_core.errors import ConfigError
from contextpilot_integrations.serving.chat.tenants import Tenants

KEY = "a key of more than sixteen bytes"


def test_a_salt_is_the_mac_of_its_namespace():
    mac = hmac.new(KEY.encode(), b"contextpilot cache salt\0tenant", hashlib.sha256)
    expected = base64.urlsafe_b64encode(mac.digest()).decode()[:43]
    assert Tenants(KEY).cache_salt("tenant") == Tenants(KEY.encode()).cache_salt("tenant") == expected


@given(st.text(), st.text())
def test_salts_differ_by_namespace_and_by_key(one, two):
    tenants, others = Tenants(KEY), Tenants(KEY[::-1])
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", tenants.cache_salt(one))
    assert (tenants.cache_salt(one) == tenants.cache_salt(two)) == (one == two)
    assert tenants.cache_salt(one) != others.cache_salt(one)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"extra_body": None},
        {"extra_body": {"cache_salt": "stolen"}},
        {"cache_salt": "stolen", "extra_body": {"cache_salt": "stolen"}},
    ],
)
def test_a_salt_that_is_given_is_replaced(options):
    tenants = Tenants(KEY)
    given_options = {**options, "temperature": 0}
    salted = tenants.salted(given_options, "tenant")
    assert salted == {"temperature": 0, "extra_body": {"cache_salt": tenants.cache_salt("tenant")}}
    assert given_options == {**options, "temperature": 0}


def test_the_rest_of_extra_body_stays():
    assert Tenants(KEY).salted({"extra_body": {"top_k": 1}}, "t")["extra_body"]["top_k"] == 1


@pytest.mark.parametrize(("key", "got"), [("short", "5 bytes"), (b"", "0 bytes"), (None, "NoneType"), (7, "int")])
def test_a_key_that_can_be_guessed_is_refused(key, got):
    with pytest.raises(ConfigError, match=rf"at least 16 bytes, got {got}; make one with secrets\.token_urlsafe"):
        Tenants(key)


def test_the_key_is_nowhere_to_be_seen():
    tenants = Tenants(KEY)
    assert KEY not in f"{tenants!r}{tenants}{vars(tenants)}"
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(tenants)
    with pytest.raises(ConfigError) as caught:
        Tenants("hunter2")
    assert "hunter2" not in str(caught.value)
