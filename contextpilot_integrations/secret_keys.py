"""Secrets that an application configures: checked where they come in, and shown by no error."""

from contextpilot_core import ConfigError

_FEWEST_BYTES = 16


def secret_key(name: str, value: object) -> bytes:
    """Return a secret as bytes, a str in UTF-8. ``name`` says what it is for.

    Raises:
        ConfigError: it has fewer than 16 bytes, or is neither str nor bytes.
    """
    secret = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not isinstance(secret, bytes) or len(secret) < _FEWEST_BYTES:
        given = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(value).__name__
        raise ConfigError(
            f"{name} must be a secret of at least {_FEWEST_BYTES} bytes, got {given}; make one with "
            "secrets.token_urlsafe(32), and configure the same in every process"
        )
    return secret
