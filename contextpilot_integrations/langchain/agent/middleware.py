"""Middleware for ``create_agent``: what a retrieval tool brought before is not sent again."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from types import NoneType
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from contextpilot_core import ConfigError, EngineConfig, ReuseEngine, TokenCounter, estimate_tokens
from contextpilot_core.checks import able, kind_of
from contextpilot_integrations.extras import load
from contextpilot_integrations.langchain.agent.cited import labelled_documents, with_places
from contextpilot_integrations.langchain.agent.rendering import Rendering, ResultRenderer
from contextpilot_integrations.langchain.agent.results import why_left
from contextpilot_integrations.langchain.agent.tool import is_retriever_tool
from contextpilot_integrations.serving.chat import check_parts

load("langchain.agents.middleware", extra="langchain-agents")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402

_LOG = logging.getLogger(__name__)


class ContextPilotMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """De-duplicates and labels retrieved tool results in every call of the model; the agent's state keeps them whole.

        create_agent(model, tools=[tool], middleware=[summarizing, ContextPilotMiddleware()])

    It works with tool messages whose artifact is a list of documents and whose content shows their texts one behind
    the other, as those of `create_contextpilot_retriever_tool` and of LangChain's own retrieval tools with
    ``response_format="content_and_artifact"``. What the tool puts around a text (source, title, header, footer) stays
    in its place; a text that an earlier message shows in the same form becomes a hint to there. All else stays as it
    is; where that is a result with documents, a warning in the log says so, once. Place it after middleware that
    summarises, clears or redacts: then hints name only what is still there.

    Answers carry where the documents of their labels are, for `sources_of`.
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
            ConfigError: both are given, or an argument is of another type.
        """
        super().__init__()
        kind_of("config", config, (EngineConfig, NoneType), "an EngineConfig, or None")
        check_parts(engine=engine)
        able("token_counter", token_counter, ["__call__"], "a function from a text to its tokens")
        if config is not None and engine is not None:
            raise ConfigError("config and engine are both given; give one of them: an engine has a config of its own")
        chosen = engine.config if engine is not None else config or EngineConfig()
        self._rendered = ResultRenderer(chosen, token_counter)
        self._warned = False

    def sources(self, messages: Sequence[BaseMessage]) -> dict[int, Document]:
        """Return the documents by the labels under which the model would see them now, before it has answered."""
        return labelled_documents(self._rendered(messages))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the results rendered."""
        rendering = self._read(request)
        return with_places(handler(_changed(request, rendering)), rendering)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model with the results rendered."""
        rendering = self._read(request)
        return with_places(await handler(_changed(request, rendering)), rendering)

    def _read(self, request: ModelRequest[Any]) -> Rendering:
        rendering = self._rendered(request.messages)
        if not self._warned:
            retrievers = {tool.name for tool in getattr(request, "tools", ()) if is_retriever_tool(tool)}
            reasons = (why_left(each, retriever=each.name in retrievers) for each in request.messages)
            reason = next(filter(None, reasons), None)
            if reason is not None:
                self._warned = True
                _LOG.warning("%s", reason)
        return rendering


def _changed(request: ModelRequest[Any], rendering: Rendering) -> ModelRequest[Any]:
    """Return the request with what was rendered; itself where nothing was."""
    if all(new is old for new, old in zip(rendering.messages, request.messages, strict=True)):
        return request
    return request.override(messages=list(rendering.messages))  # type: ignore[arg-type]
