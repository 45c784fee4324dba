"""The reuse engine: plans retrieval-augmented prompts so that they share prefixes with what is cached."""

from contextpilot_core.config import EngineConfig
from contextpilot_core.engine import Observer, ReuseEngine, WindowScheduler
from contextpilot_core.errors import (
    AnswerError,
    ConfigError,
    ContextPilotError,
    DuplicateRequestError,
    IntegrityError,
    MissingExtraError,
    MissingModelError,
    RequestError,
    RequestTypeError,
    TooManyContextsError,
    TraceError,
)
from contextpilot_core.mirror import KVMirror
from contextpilot_core.plan import BatchPlan, Plan
from contextpilot_core.prompt import Citations, citations
from contextpilot_core.tokens import TokenCounter, estimate_tokens
from contextpilot_core.types import (
    ContextBlock,
    ContextRequest,
    EngineStats,
    EvictionReport,
    Hint,
    Message,
    Observation,
    PlanReport,
    PromptTokens,
    Segment,
    Served,
    Source,
)

__version__ = "0.1.0"
"""Of the distribution ``contextpilot-rag``, with both packages; nothing else says it."""

__all__ = [
    "AnswerError",
    "BatchPlan",
    "Citations",
    "ConfigError",
    "ContextBlock",
    "ContextPilotError",
    "ContextRequest",
    "DuplicateRequestError",
    "EngineConfig",
    "EngineStats",
    "EvictionReport",
    "Hint",
    "IntegrityError",
    "KVMirror",
    "Message",
    "MissingExtraError",
    "MissingModelError",
    "Observation",
    "Observer",
    "Plan",
    "PlanReport",
    "PromptTokens",
    "RequestError",
    "RequestTypeError",
    "ReuseEngine",
    "Segment",
    "Served",
    "Source",
    "TokenCounter",
    "TooManyContextsError",
    "TraceError",
    "WindowScheduler",
    "__version__",
    "citations",
    "estimate_tokens",
]
