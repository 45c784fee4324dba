"""What goes to the model besides the messages: options of the call, of bindings, and of the model itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase

from contextpilot_core import Plan, PromptTokens
from contextpilot_integrations.serving.chat import SALT, Tenants, Usage, check_options
from contextpilot_integrations.serving.tokens import PromptTokenizer

_OF_MODELS = "max_tokens", "extra_body", "n"


@dataclass(frozen=True)
class ModelCall:
    """``arguments``: of this call. ``options``: with those that bindings and the model add, as far as they show."""

    arguments: dict[str, Any]
    options: Mapping[str, Any]

    @property
    def cache_salt(self) -> str | None:
        """The salt under which the prompt is cached."""
        return self._extra.get(SALT)

    def read_tokens(
        self, tokenizer: PromptTokenizer, plan: Plan, prompt: Sequence[BaseMessage], usage: Usage
    ) -> PromptTokens | None:
        """Return the exact tokens of what was sent, None where they cannot be told."""
        try:
            messages = convert_to_openai_messages(prompt)
        except ValueError:  # a message has no such form
            return None
        return tokenizer.read(
            plan,
            messages,
            prompt_tokens=usage.prompt_tokens,
            tools=self.options.get("tools"),
            template_options=self._extra.get("chat_template_kwargs"),
        )

    @property
    def _extra(self) -> Mapping[str, Any]:
        return self.options.get("extra_body") or {}


def model_call(
    llm: Runnable[Any, BaseMessage], arguments: Mapping[str, Any], tenants: Tenants | None, namespace: str
) -> ModelCall:
    """Return a call of ``llm``; with ``tenants`` under the salt of the namespace, whatever salt it would have had.

    Raises:
        RequestError: more than one answer is asked for.
    """
    bound: dict[str, Any] = {}
    while isinstance(llm, RunnableBindingBase):
        bound = {**llm.kwargs, **bound}
        llm = llm.bound
    own = {name: value for name in _OF_MODELS if (value := getattr(llm, name, None)) is not None}
    options = {**own, **bound, **arguments}
    check_options(options)
    if tenants is None:
        return ModelCall(dict(arguments), options)
    # What a call brings stands in place of an ``extra_body`` elsewhere, so it takes that over.
    salted = tenants.salted({**arguments, "extra_body": options.get("extra_body")}, namespace)
    return ModelCall(salted, {**options, **salted})
