"""Secrets are checked where they come in, and no error shows one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_core import ConfigError
from contextpilot_integrations.secret_keys import secret_key

CHARACTERS = st.characters(exclude_categories=())


def test_bytes_stay_and_texts_become_utf_8():
    assert secret_key("secret", b"x" * 16) == b"x" * 16
    assert secret_key("secret", "x" * 16) == b"x" * 16
    assert secret_key("secret", "ä" * 8) == "ä".encode() * 8, "bytes count, not characters"


@settings(deadline=None)
@given(st.text(CHARACTERS, min_size=16))
def test_any_text_of_sixteen_characters_is_a_secret_of_its_own(text):
    assert secret_key("secret", text).decode("utf-8", "surrogatepass") == text


@settings(deadline=None)
@given(st.text(CHARACTERS) | st.binary())
def test_shorter_ones_are_refused_by_their_length_alone(secret):
    given_bytes = secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogatepass")
    if len(given_bytes) >= 16:
        assert secret_key("secret", secret) == given_bytes
        return
    with pytest.raises(ConfigError) as caught:
        secret_key("isolation_key", secret)
    assert str(caught.value) == (
        f"isolation_key must be a secret of at least 16 bytes, got {len(given_bytes)} bytes; make one with "
        "secrets.token_urlsafe(32), and configure the same in every process"
    )


@pytest.mark.parametrize("value", [None, 1234567890123456, bytearray(b"x" * 16), ["x" * 16]])
def test_what_is_no_text_and_no_bytes_is_refused_by_its_type(value):
    with pytest.raises(ConfigError, match=f"secret must be a secret of .*got {type(value).__name__};") as caught:
        secret_key("secret", value)
    assert "xxx" not in str(caught.value) and "1234" not in str(caught.value)
