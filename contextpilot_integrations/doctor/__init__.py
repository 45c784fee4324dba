"""The doctor: diagnoses prompts in files, and those that a LangChain or LlamaIndex object really sends."""

from contextpilot_integrations.doctor.files import read_prompts
from contextpilot_integrations.doctor.probe import probe, record
from contextpilot_integrations.doctor.recording import Recording

__all__ = ["Recording", "probe", "read_prompts", "record"]
