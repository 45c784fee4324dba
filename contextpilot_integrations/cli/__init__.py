"""The command line: ``contextpilot-rag``, or ``python -m contextpilot_integrations.cli``."""

from contextpilot_integrations.cli.main import main

__all__ = ["main"]
