"""What a template puts around the documents."""

import pytest

from contextpilot_core import ConfigError
from tests.conftest import require

require("llama_index.core")

from llama_index.core.chat_engine.condense_plus_context import DEFAULT_CONTEXT_PROMPT_TEMPLATE  # noqa: E402
from llama_index.core.chat_engine.context import DEFAULT_CONTEXT_TEMPLATE  # noqa: E402
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate  # noqa: E402
from llama_index.core.prompts.default_prompt_selectors import DEFAULT_TEXT_QA_PROMPT_SEL  # noqa: E402
from llama_index.core.prompts.default_prompts import DEFAULT_TEXT_QA_PROMPT  # noqa: E402
from llama_index.core.prompts.rich import RichPromptTemplate  # noqa: E402

from contextpilot_integrations.llama_index.chat.template import ContextTemplate  # noqa: E402


@pytest.mark.parametrize(
    ("template", "around"),
    [
        ("{context_str}", ("", "q")),
        ("Use:\n{context_str}\n\n---\n", ("Use:\n", "---\n\nq")),
        ("Use:\n{context_str}\nQ: {query_str}\nA:", ("Use:\n", "Q: q\nA:")),
        ("Q: {query_str}\n{context_str}", ("Q: q\n", "")),
        ("{other} {context_str} {query_str} {query_str}", ("{other} ", " q q")),
        (PromptTemplate("{my_context}|{query_str}", template_var_mappings={"context_str": "my_context"}), ("", "|q")),
        (PromptTemplate("{day} {context_str}", function_mappings={"day": lambda **given: "Monday"}), ("Monday ", "q")),
        (PromptTemplate("{tone}: {context_str}", tone="Kind"), ("Kind: ", "q")),
        (RichPromptTemplate("<b>{{ context_str }}</b> {{ query_str }}"), ("<b>", "</b> q")),
    ],
)
def test_before_and_behind(template, around):
    assert ContextTemplate(template).around("q") == around


@pytest.mark.parametrize(
    "template", [DEFAULT_CONTEXT_TEMPLATE, DEFAULT_CONTEXT_PROMPT_TEMPLATE, DEFAULT_TEXT_QA_PROMPT]
)
def test_the_templates_of_the_framework(template):
    made = PromptTemplate(template) if isinstance(template, str) else template
    head, words = ContextTemplate(template).around("Why?")
    assert made.format(context_str="DOCS", query_str="Why?").startswith(f"{head}DOCS")
    assert "Why?" in words


@pytest.mark.parametrize("question", ["{context_str}", "{{ context_str }}", "\0context\0", "a\0context\0\0b", ""])
@pytest.mark.parametrize(
    "template", ["{context_str} {query_str}", RichPromptTemplate("{{ context_str }} {{ query_str }}")]
)
def test_a_question_is_words(template, question):
    assert ContextTemplate(template).around(question) == ("", f" {question}" if question else " ")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("Answer: {query_str}", "0 times"),
        ("{context_str} {context_str}", "2 times"),
        (PromptTemplate("{context_str}", function_mappings={"context_str": lambda **given: "mine"}), "0 times"),
        (ChatPromptTemplate.from_messages([("user", "{context_str}")]), "ChatPromptTemplate with more than one"),
        (RichPromptTemplate("{% chat role='user' %}{{ context_str }}{% endchat %}"), "without roles"),
        (DEFAULT_TEXT_QA_PROMPT_SEL, "SelectorPromptTemplate"),
        (7, "is a int"),
    ],
)
def test_what_is_no_template_of_one_message_with_the_context_once_is_refused(template, said):
    with pytest.raises(ConfigError, match=said):
        ContextTemplate(template)
