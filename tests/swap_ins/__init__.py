"""Pipelines of both frameworks with and without us, on recorded prompts: what the table in docs/swap-ins.md says."""
