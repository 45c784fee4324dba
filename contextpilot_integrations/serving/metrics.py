"""What engines do, for Prometheus: read at each scrape from their statistics, and counted while they plan.

    metrics = EngineMetrics()
    prometheus_client.REGISTRY.register(metrics)
    engine = ReuseEngine(observer=metrics.meter("chat"))

No label holds a text: of documents, questions, or tenants that were not named beforehand. (Prometheus' multiprocess
mode knows no collectors: give every process a port of its own.)
"""

from collections.abc import Callable, Collection, Iterator
from weakref import WeakMethod

from contextpilot_core import ConfigError, EngineStats, Observation, Observer, Plan
from contextpilot_core.checks import shown
from contextpilot_core.mirror import ProcessLock
from contextpilot_integrations.extras import load

load("prometheus_client", extra="metrics")

from prometheus_client import Counter, Histogram  # noqa: E402
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric  # noqa: E402
from prometheus_client.registry import Collector  # noqa: E402

OTHER = "other"
_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_COUNTERS = (
    ("plans", "planned", "Plans made"),
    ("block_tokens", "block_tokens", "Block tokens sent in full, by the engine's counter"),
    ("hinted_tokens", "hinted_tokens", "Block tokens replaced by hints"),
    ("evictions", "evictions", "Contexts that left the view of the cache"),
    ("responses", "compared", "Responses with a prediction and a report"),
    ("unreported_responses", "unreported", "Responses without a report of cached tokens"),
    ("prompt_tokens", "prompt_tokens", "Prompt tokens of the responses with a report"),
    ("predicted_tokens", "predicted_tokens", "Cached tokens as predicted, of the responses with a report"),
    ("reported_tokens", "reported_tokens", "Cached tokens as reported by the server"),
)
_GAUGES: tuple[tuple[str, Callable[[EngineStats], float | None], str], ...] = (
    ("live_contexts", lambda stats: stats.live_requests, "Contexts that are believed to be cached"),
    ("in_flight_plans", lambda stats: stats.in_flight, "Plans that wait to be committed"),
    ("cached_tokens", lambda stats: stats.cached_tokens, "Tokens that are believed to be cached"),
    ("hit_rate", lambda stats: hit_rate(stats), "Reported cached tokens per prompt token, since the start"),
    ("drift_tokens", lambda stats: stats.drift, "Predicted minus reported tokens, mean of the last responses"),
    ("on_events", lambda stats: stats.source == "events", "1 when plans rely on the server's events, 0 on an estimate"),
)


def hit_rate(stats: EngineStats) -> float | None:
    """Return the share of prompt tokens that the server took from its cache; None before the first report."""
    return min(1.0, stats.reported_tokens / stats.prompt_tokens) if stats.prompt_tokens else None


class EngineMetrics(Collector):
    """A collector over any number of engines, told apart by the label ``engine``.

    ``namespaces`` names the tenants that get figures of their own, under the label ``namespace``; the others are
    "other" there. None, the default, have any.
    """

    def __init__(self, *, namespaces: Collection[str] = ()) -> None:
        if (
            isinstance(namespaces, str)
            or not isinstance(namespaces, Collection)
            or not all(isinstance(name, str) and name for name in namespaces)
        ):
            raise ConfigError("namespaces must be a list of the namespaces that get figures of their own; give names")
        self._namespaces = frozenset(namespaces)
        self._stats: dict[str, WeakMethod[Callable[[], EngineStats]]] = {}
        self._lock = ProcessLock()
        self._seconds = Histogram(
            "contextpilot_plan_seconds", "Time to plan one request", ["engine"], registry=None, buckets=_BUCKETS
        )
        self._plans, self._predicted, self._reported = (
            Counter(f"contextpilot_namespace_{name}", meaning, ["engine", "namespace"], registry=None)
            for name, meaning in (
                ("plans", "Plans made, by namespace"),
                ("predicted_tokens", "Cached tokens as predicted, by namespace"),
                ("reported_tokens", "Cached tokens as reported, by namespace"),
            )
        )

    def meter(self, name: str = "default") -> Observer:
        """Return the observer for one engine, whose figures get the label ``name``.

        Raises:
            ConfigError: the name is empty; when the engine is made: it is that of an engine which still exists.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the engine's name={shown(name)} must be a str that is not empty; give one")
        return _Meter(name, self)

    def add(self, name: str, stats: Callable[[], EngineStats]) -> None:
        """Read ``stats``, a method, while its object exists. Raises `ConfigError` when the name is taken until then."""
        with self._lock:
            if name in self._stats and self._stats[name]() is not None:
                raise ConfigError(f"the engine's name={name!r} is taken: each engine needs a meter of its own; rename")
            self._stats[name] = WeakMethod(stats)

    def count(self, engine: str, plan: Plan, *, seconds: float) -> None:
        """Count a plan."""
        self._seconds.labels(engine).observe(seconds)
        if self._namespaces:
            self._plans.labels(engine, self._label(plan)).inc()

    def compare(self, engine: str, plan: Plan, observation: Observation) -> None:
        """Count a response."""
        if self._namespaces and observation.predicted is not None and observation.reported is not None:
            self._predicted.labels(engine, self._label(plan)).inc(observation.predicted)
            self._reported.labels(engine, self._label(plan)).inc(observation.reported)

    def collect(self) -> Iterator[Metric]:
        """Yield every family, with a sample for each engine that knows the value."""
        with self._lock:
            sources = {name: method() for name, method in self._stats.items()}
        stats = {name: read() for name, read in sources.items() if read is not None}
        for name, attribute, meaning in _COUNTERS:
            counter = CounterMetricFamily(f"contextpilot_{name}", meaning, labels=["engine"])
            for engine, figures in stats.items():
                counter.add_metric([engine], getattr(figures, attribute))
            yield counter
        for name, value_of, meaning in _GAUGES:
            gauge = GaugeMetricFamily(f"contextpilot_{name}", meaning, labels=["engine"])
            for engine, figures in stats.items():
                value = value_of(figures)
                if value is not None:  # unknown is not 0
                    gauge.add_metric([engine], value)
            yield gauge
        yield from self._seconds.collect()
        if self._namespaces:
            for each in (self._plans, self._predicted, self._reported):
                yield from each.collect()

    def _label(self, plan: Plan) -> str:
        namespace = plan.request.namespace
        return namespace if namespace in self._namespaces else OTHER


class _Meter:
    """The observer of one engine."""

    def __init__(self, name: str, metrics: EngineMetrics) -> None:
        self._name, self._metrics = name, metrics

    def attached(self, stats: Callable[[], EngineStats]) -> None:
        self._metrics.add(self._name, stats)

    def planned(self, plan: Plan, seconds: float) -> None:
        self._metrics.count(self._name, plan, seconds=seconds)

    def observed(self, plan: Plan, observation: Observation) -> None:
        self._metrics.compare(self._name, plan, observation)
