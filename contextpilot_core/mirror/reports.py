"""What the engine reports of its cache, against what was predicted: drift, and whether events are believed."""

import logging
from collections.abc import Callable
from typing import Literal

from contextpilot_core.cache import BlockTable, View
from contextpilot_core.config import EngineConfig
from contextpilot_core.mirror.drift import DriftMonitor
from contextpilot_core.mirror.mirror import KVMirror
from contextpilot_core.mirror.view import TruthView
from contextpilot_core.types import Observation, Served

_log = logging.getLogger(__name__)
_SILENT_RESPONSES = 3


class CacheReports:
    """Owns the comparison; ``mirror`` is what the engine's events tell, None without any. The caller holds a lock.

    ``whole``: what these are a part of. Every namespace judges by its own responses alone; the whole only sums up what
    they told, and says once for all that the server tells nothing.
    """

    def __init__(
        self,
        config: EngineConfig,
        mirror: KVMirror | None,
        clock: Callable[[], float],
        whole: "CacheReports | None" = None,
    ) -> None:
        self._config = config
        self._mirror = mirror
        self._clock = clock
        self._whole = whole
        self._drift = {"events": DriftMonitor(), "estimate": DriftMonitor()}
        self._silent: int | None = 0  # responses without a report; None as soon as one had it

    def part(self) -> "CacheReports":
        """Return the reports of one more namespace."""
        return CacheReports(self._config, self._mirror, self._clock, self)

    def view(self, estimate: View, blocks: BlockTable) -> View:
        """Return what a namespace plans on: the events as long as they are believed, else ``estimate``."""
        if self._mirror is None:
            return estimate
        return TruthView(
            estimate,
            blocks,
            self._mirror,
            self._believed,
            max_requests=self._config.max_requests,
            patience=self._config.in_flight_seconds,
            clock=self._clock,
        )

    def _believed(self) -> bool:
        return self._mirror is not None and self._mirror.live and not self._drift["events"].alarm

    @property
    def follows_events(self) -> bool:
        """Whether there is a mirror."""
        return self._mirror is not None

    @property
    def source(self) -> Literal["events", "estimate"]:
        """What plans rely on now."""
        return "events" if self._believed() else "estimate"

    @property
    def moment(self) -> int | None:
        """The present state of the mirror, to ask for later; None while it says nothing that is sure."""
        return self._mirror.moment if self._mirror is not None and self._mirror.live else None

    @property
    def drift(self) -> float | None:
        """Mean of predicted minus reported tokens over the last requests, of the present source."""
        return self.drift_of(self.source)

    def drift_of(self, source: Literal["events", "estimate"]) -> float | None:
        """As `drift`, of a source."""
        return self._drift[source].mean

    def keys(self, served: Served) -> tuple[bytes, ...]:
        """Return the KV blocks of the prompt; none while nothing is known of them."""
        if self._mirror is None or served.tokens is None:
            return ()
        return self._mirror.keys(served.tokens.token_ids, salt=served.cache_salt)

    @property
    def block_size(self) -> int:
        """Tokens per KV block: the engine's own as soon as it told."""
        known = None if self._mirror is None else self._mirror.block_size
        return known or self._config.kv_block

    def observe(self, moment: int | None, expected_share: float, served: Served) -> Observation:
        """Compare one response with what was predicted when it was planned; more than the prompt cannot be cached."""
        predicted, source = self._predict(moment, expected_share, served)
        (self._whole or self)._notice_silence(served)
        reported = served.cached_tokens
        if reported is not None and served.prompt_tokens is not None:
            reported = min(reported, served.prompt_tokens)
        if predicted is not None and reported is not None:
            rough = 0 if source == "events" else (served.prompt_tokens or 0) // 4
            tolerance = max(self.block_size, rough)
            if self._drift[source].add(predicted, reported, tolerance=tolerance):
                self._say_drift(source)
            if self._whole is not None:
                self._whole._drift[source].add(predicted, reported, tolerance=tolerance)
        return Observation(predicted=predicted, reported=reported, source=source)

    def _predict(
        self, moment: int | None, expected_share: float, served: Served
    ) -> tuple[int | None, Literal["events", "estimate"]]:
        """Return the cached tokens predicted at the time of the plan, and from what."""
        if self._mirror is not None and self._mirror.live and moment is not None and served.tokens is not None:
            return self._mirror.cached_tokens(served.tokens.token_ids, salt=served.cache_salt, at=moment), "events"
        if served.prompt_tokens is None:
            return None, "estimate"
        # The counter's tokens are not the engine's: only their ratio is used.
        tokens = int(expected_share * served.prompt_tokens)
        return tokens // self.block_size * self.block_size, "estimate"

    def _notice_silence(self, served: Served) -> None:
        if served.cached_tokens is not None or self._silent is None:
            self._silent = None
            return
        self._silent += 1
        if self._silent == _SILENT_RESPONSES:
            _log.warning(
                "the server reported no cached tokens in %d responses; start vLLM with --enable-prompt-tokens-details, "
                "SGLang with --enable-cache-report",
                _SILENT_RESPONSES,
            )

    def _say_drift(self, source: Literal["events", "estimate"]) -> None:
        monitor = self._drift[source]
        figures = f"{monitor.mean:+.0f} tokens predicted minus reported, mean of the last requests"
        if source == "estimate":
            if monitor.alarm:
                less, lower = ("less", "lower") if (monitor.mean or 0) > 0 else ("more", "raise")
                _log.warning(
                    "the engine caches %s than the estimate expects (%s): %s EngineConfig.cache_tokens=%s, or follow "
                    "the engine's KV events",
                    less,
                    figures,
                    lower,
                    self._config.cache_tokens,
                )
        elif monitor.alarm:
            _log.warning(
                "what the engine's events tell is not what it reports (%s): planning on the estimate until the two "
                "agree again",
                figures,
            )
        else:
            _log.info("events and reports agree again (%s): planning on the events", figures)
