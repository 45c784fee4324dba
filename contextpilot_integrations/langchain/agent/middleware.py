"""Middleware for ``create_agent``: what a retrieval tool brought before is not sent again."""

from collections.abc import Awaitable, Callable
from typing import Any

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_integrations.extras import load
from contextpilot_integrations.langchain.agent.rendering import ResultRenderer

load("langchain.agents.middleware", extra="langchain-agents")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402


class ContextPilotMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """De-duplicates and labels retrieved tool results in every call of the model; the agent's state keeps them whole.

        create_agent(model, tools=[tool], middleware=[summarizing, ContextPilotMiddleware()])

    Retrieved is a tool message whose artifact is a list of documents and whose content shows their texts, as that of
    `create_contextpilot_retriever_tool`; nothing else is touched. Of each document the model sees its text (or what
    ``EngineConfig.renderer`` makes of it); what it saw in an earlier message becomes a hint to there. Place it after
    middleware that summarises, clears or redacts: then hints name only what is still there.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "ContextPilotMiddleware":
        """Return the middleware itself: what it remembers changes no byte, so copies may share it."""
        return self

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        engine: ReuseEngine | None = None,
        token_counter: TokenCounter = estimate_tokens,
    ) -> None:
        """Take wording and de-duplication from ``config``, or from that of ``engine``.

        An engine's state is not used: what the model is sent depends on the messages alone.

        Raises:
            ConfigError: both are given.
        """
        super().__init__()
        if config is not None and engine is not None:
            raise ConfigError("config and engine are both given; give one of them: an engine has a config of its own")
        chosen = engine.config if engine is not None else config or EngineConfig()
        self._rendered = ResultRenderer(chosen, token_counter)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the results rendered."""
        return handler(self._changed(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model with the results rendered."""
        return await handler(self._changed(request))

    def _changed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        messages = self._rendered(request.messages)
        if all(new is old for new, old in zip(messages, request.messages, strict=True)):
            return request
        return request.override(messages=messages)  # type: ignore[arg-type]
