"""What a probe collects while somebody else's pipeline runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextpilot_core import Message
from contextpilot_core.diagnose import PromptRecord


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Every prompt that reached a model, in order, and the texts that retrievers returned (each once).

    remarks: what else is worth saying of the pipeline, each once, in a sentence.
    """

    prompts: tuple[PromptRecord, ...]
    documents: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@dataclass
class Recorder:
    """Collects prompts and documents; ``question`` is the query that runs."""

    question: str = ""
    prompts: list[PromptRecord] = field(default_factory=list)
    documents: dict[str, None] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)

    def prompt(self, prompt: str | Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Take the prompt of one call to a model."""
        self.prompts.append(PromptRecord(prompt=prompt, tools=tools, question=self.question))

    def document(self, text: str) -> None:
        """Take a retrieved text."""
        self.documents[text.strip()] = None

    def remark(self, sentence: str) -> None:
        """Take what is worth saying of the pipeline."""
        self.remarks[sentence] = None

    def recording(self) -> Recording:
        """Return what was collected."""
        return Recording(prompts=tuple(self.prompts), documents=tuple(self.documents), remarks=tuple(self.remarks))
