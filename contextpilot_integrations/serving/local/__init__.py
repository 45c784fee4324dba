"""llama.cpp, embedded."""

from contextpilot_integrations.serving.local.engine import LocalEngine

__all__ = ["LocalEngine"]
