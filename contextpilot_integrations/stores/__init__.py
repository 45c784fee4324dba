"""Stores: how several application processes share one view of one serving engine's prefix cache (extra ``redis``)."""

from contextpilot_integrations import extras

extras.load("redis", extra="redis")
extras.load("msgspec", extra="redis")

from contextpilot_integrations.stores.redis import RedisStore  # noqa: E402  # after it is known to be there

__all__ = ["RedisStore"]
