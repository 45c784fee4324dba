"""What keeps the tenants of one model server apart: a salt per namespace, which enters their KV blocks' hashes.

A prefix cache that tenants share tells them by its speed what others have asked. vLLM and SGLang take a
``cache_salt`` with a request: blocks are found again under the same salt only (docs: "Tenants"). llama.cpp ignores
it: there, tenants need servers of their own.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from contextpilot_integrations.secret_keys import secret_key

SALT = "cache_salt"
_PURPOSE = b"contextpilot cache salt\0"


class Tenants:
    """Makes the salts of namespaces from a secret key; without the key nobody can guess one.

    Give every process and replica the same key: the same namespace then finds its own blocks everywhere. The key is
    in no ``repr``, log or pickle.
    """

    def __init__(self, key: bytes | str) -> None:
        """Keep a MAC under ``key``, a secret of at least 16 bytes (a str counts in UTF-8).

        Raises:
            ConfigError: the key is too short, or of another type.
        """
        self._mac = hmac.new(secret_key("the tenants' key", key), _PURPOSE, hashlib.sha256)

    def cache_salt(self, namespace: str) -> str:
        """Return the salt of a namespace: 43 characters, always the same under the same key (HMAC-SHA256)."""
        mac = self._mac.copy()
        mac.update(namespace.encode("utf-8", "surrogatepass"))
        return base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()

    def salted(self, options: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return the options of a request with the salt of ``namespace`` in their ``extra_body``.

        A salt that they bring, there or at the top, is replaced: whose blocks may be found is not theirs to say.
        """
        kept = {name: value for name, value in options.items() if name != SALT}
        return {**kept, "extra_body": {**(kept.get("extra_body") or {}), SALT: self.cache_salt(namespace)}}
