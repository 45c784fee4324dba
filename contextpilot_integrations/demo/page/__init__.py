"""The report of the demo as a page."""

from contextpilot_integrations.demo.page.html import write_report

__all__ = ["write_report"]
