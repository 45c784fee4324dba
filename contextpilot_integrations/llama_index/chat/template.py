"""What a prompt template of LlamaIndex's puts around the documents of a question."""

from llama_index.core.prompts import PromptTemplate
from llama_index.core.prompts.rich import RichPromptTemplate

from contextpilot_core import ConfigError

_CONTEXT, _QUESTION = "\0context\0", "\0question\0"


class ContextTemplate:
    """A template with ``context_str`` and perhaps ``query_str``, like those of the stock chat engines."""

    def __init__(self, template: str | PromptTemplate | RichPromptTemplate) -> None:
        """Check the template. Raises `ConfigError`: it is of another kind, or does not show the context just once."""
        made = PromptTemplate(template) if isinstance(template, str) else template
        if not isinstance(made, (PromptTemplate, RichPromptTemplate)) or getattr(made, "is_chat_template", False):
            raise ConfigError(
                f"context_template is a {type(template).__name__} with more than one message; give a str, or a "
                "PromptTemplate or RichPromptTemplate without roles"
            )
        self._template, self._asks = made, True
        self._asks = _QUESTION in "".join(self.around(_QUESTION))

    def around(self, question: str) -> tuple[str, str]:
        """Return what stands before the context, and behind it. The question is in one of them.

        Raises:
            ConfigError: the template does not show the context, or not just once.
        """
        mark = _CONTEXT
        while mark in question:
            mark += "\0"
        head, *rest = self._template.format(context_str=mark, query_str=question).split(mark)
        if len(rest) != 1:
            raise ConfigError(
                f"context_template shows context_str {len(rest)} times; it must show it once, as it is, for example "
                "'Use this:\n{context_str}\nQuestion: {query_str}'"
            )
        behind = [rest[0].strip("\n"), "" if self._asks else question]
        return head, "\n\n".join([part for part in behind if part])
