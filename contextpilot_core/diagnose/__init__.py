"""Diagnosis of prompts: where they first differ, what kind of thing differs, what it costs and what to change."""

from contextpilot_core.diagnose.changes import Kind
from contextpilot_core.diagnose.records import PromptLike, PromptRecord
from contextpilot_core.diagnose.report import Diagnosis, Finding, PairDiagnosis
from contextpilot_core.diagnose.run import diagnose, reusable_tokens
from contextpilot_core.diagnose.tools import canonical_tools

__all__ = [
    "Diagnosis",
    "Finding",
    "Kind",
    "PairDiagnosis",
    "PromptLike",
    "PromptRecord",
    "canonical_tools",
    "diagnose",
    "reusable_tokens",
]
