"""What a diagnosis says: frozen values that hold places, lengths and token counts, never the text of a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass

from contextpilot_core.diagnose.changes import Kind

MEANINGS: Mapping[Kind, tuple[str, str]] = {
    "appended": ("the later prompt continues the earlier one", "Nothing to change."),
    "tail": ("only what stands last differs", "Nothing to change."),
    "tool_order": (
        "the same tools are listed in another order",
        "List the tools in one order, for example canonical_tools(tools).",
    ),
    "tool_keys": (
        "the same tools are written with their keys in another order",
        "Write the tools in one form, for example canonical_tools(tools).",
    ),
    "tool_set": (
        "other tools are defined",
        "Send one set of tools with every request of an application, also those that one request does not need.",
    ),
    "clock": (
        "a time or date changes",
        "Move it behind the documents, next to the question, or leave it out (or round it to the day).",
    ),
    "score": (
        "a score that changes per query is printed with a text",
        "Keep scores out of what the model reads (LlamaIndex: excluded_llm_metadata_keys; LangChain: document_prompt).",
    ),
    "id": (
        "an id that changes per request is printed",
        "Leave the id out, make it constant per document, or move it behind the documents.",
    ),
    "path": (
        "the path of a file changes where the text does not",
        "Print a name that is the same on every machine and run, or leave the path out.",
    ),
    "rank_label": (
        "documents carry their rank as a label, or an order note stands before them",
        "Label by position or by a constant id, and tell the order of relevance behind the documents.",
    ),
    "user": (
        "the system message names the user",
        "Say who asks behind the documents, next to the question.",
    ),
    "email": (
        "an e-mail address in the system message changes",
        "Say who asks behind the documents, next to the question, or leave the address out.",
    ),
    "tenant": (
        "the system message names a tenant",
        "Where tenants share documents, name the tenant behind those, next to the question. Where each has a cache of "
        "its own (a namespace, a cache_salt), nothing is lost.",
    ),
    "turn": (
        "the system message counts turns or messages",
        "Leave the number out, or put it next to the question.",
    ),
    "language": (
        "the language of the answer stands in the system message",
        "Ask for the language next to the question.",
    ),
    "metadata_order": (
        "the same metadata is printed with its keys in another order",
        "Print metadata with sorted keys.",
    ),
    "question_before_context": (
        "the question stands before the documents",
        "Put the documents first and the question last in the prompt template (an agent's tool results come after "
        "the question by nature: there only later turns share).",
    ),
    "memory_in_system": (
        "text of the system message changes per request (memories, a profile, documents), before text that does not",
        "Keep the system message constant; put what changes last, next to the question.",
    ),
    "history_cut": (
        "earlier messages were removed or replaced (trimming, summarising)",
        "Cut the history rarely and in big steps: every cut computes all that follows again.",
    ),
    "document_order": (
        "documents that both prompts hold stand in another order",
        "Order them so that shared documents come first and alike: ReuseEngine.plan, or one of the integrations.",
    ),
    "document_set": (
        "other documents stand beside the shared ones",
        "Put the documents that both requests hold first: ReuseEngine.plan, or one of the integrations. In a chat, put "
        "documents into the user's message, behind the history.",
    ),
    "other": (
        "text differs before text that both prompts hold",
        "Move what changes behind what stays, or leave it out.",
    ),
}
"""Kind -> (what differs, what to change)."""

FINE: frozenset[Kind] = frozenset({"appended", "tail"})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that differs between two prompts, in the later one.

    message: index of the message (0 for a text), None for the tools. offset: in characters of its text.
    length_before, length_after: characters that differ in the earlier and in the later prompt. lost_tokens: tokens
    behind it that both prompts hold and that are not reused, in whole KV blocks.
    """

    kind: Kind
    message: int | None
    offset: int
    length_before: int
    length_after: int
    lost_tokens: int

    @property
    def fine(self) -> bool:
        """True when it costs nothing."""
        return self.kind in FINE or self.lost_tokens == 0

    @property
    def meaning(self) -> str:
        """What differs, in words."""
        return MEANINGS[self.kind][0]

    @property
    def advice(self) -> str:
        """What to change, in words."""
        return "Nothing to change." if self.fine else MEANINGS[self.kind][1]


@dataclass(frozen=True, kw_only=True)
class PairDiagnosis:
    """A prompt against the earlier one with which it shares most.

    message, offset: where they first differ, as in `Finding`; message is the number of messages of the earlier
    prompt when the later one continues it. documents_before, documents_behind: documents of the later prompt that
    end before that place, and that do not (known ones, else paragraphs that both prompts hold). Tokens are of the
    counter given: common_tokens of the common head; reused_tokens of it in whole KV blocks, the last token of a
    prompt never (lower bound, for a server that keeps prompts); reused_tokens_upper for a server that keeps what it
    generated too; possible_tokens if all that both hold stood first.
    """

    prompt: int
    against: int
    message: int | None
    offset: int
    documents_before: int
    documents_behind: int
    prompt_tokens: int
    common_tokens: int
    reused_tokens: int
    reused_tokens_upper: int
    possible_tokens: int
    findings: tuple[Finding, ...]

    @property
    def lost_tokens(self) -> int:
        """Tokens that could be reused and are not, in whole KV blocks."""
        return self.possible_tokens - self.reused_tokens

    @property
    def precedes_documents(self) -> bool:
        """True when the first difference stands before every document."""
        return self.documents_before == 0 and self.documents_behind > 0

    def explain(self, kv_block: int) -> str:
        """Say it in words, one finding a line."""
        upper = (
            f" ({self.reused_tokens_upper:,} with the answer)" if self.reused_tokens_upper > self.reused_tokens else ""
        )
        lines = [
            f"Prompt {self.prompt + 1} against prompt {self.against + 1}: {self.common_tokens:,} of "
            f"{self.prompt_tokens:,} tokens stand in the common head, {self.reused_tokens:,}{upper} can be reused "
            f"in KV blocks of {kv_block}; {self.lost_tokens:,} are lost."
        ]
        if not all(finding.kind == "appended" for finding in self.findings):
            before = ", before every document" if self.precedes_documents else ""
            lines.append(f"  They first differ at {_place(self.message, self.offset)}{before}.")
        for finding in self.findings:
            lines.append(
                f"  {finding.kind}: {finding.meaning} at {_place(finding.message, finding.offset)} "
                f"({finding.length_before:,} characters became {finding.length_after:,})."
            )
            cost = "nothing" if finding.fine else f"{finding.lost_tokens:,} tokens of reuse"
            lines.append(f"    It costs {cost}. {finding.advice}")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why prompts share as much of a prefix as they do. Every prompt but the first is compared with an earlier one.

    remarks: what else was seen where a pipeline was asked, each in a sentence.
    """

    kv_block: int
    pairs: tuple[PairDiagnosis, ...]
    remarks: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the prompts and of their text."""
        return tuple(finding for pair in self.pairs for finding in pair.findings)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that cost reuse, each once, in the order found."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings if not finding.fine))

    @property
    def fine(self) -> bool:
        """True when nothing costs reuse."""
        return not self.kinds

    @property
    def reused_tokens(self) -> int:
        """Tokens that can be reused, over all prompts (lower bound)."""
        return sum(pair.reused_tokens for pair in self.pairs)

    @property
    def lost_tokens(self) -> int:
        """Tokens that could be reused and are not, over all prompts."""
        return sum(pair.lost_tokens for pair in self.pairs)

    def __str__(self) -> str:
        """Return `explain`."""
        return self.explain()

    def explain(self) -> str:
        """Say what differs, what it costs and what to change; without a word of the prompts themselves."""
        verdict = (
            "Nothing here keeps the prefix cache from working."
            if self.fine
            else f"{self.lost_tokens:,} tokens of reuse are lost: {', '.join(self.kinds)}."
        )
        remarks = [f"Note: {remark}." for remark in self.remarks]
        return "\n".join([*(pair.explain(self.kv_block) for pair in self.pairs), *remarks, verdict])


def _place(message: int | None, offset: int) -> str:
    return f"the tools, character {offset:,}" if message is None else f"message {message}, character {offset:,}"
