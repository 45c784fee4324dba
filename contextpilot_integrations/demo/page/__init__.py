"""The report of the demo as a page."""

from contextpilot_integrations.demo.page.html import check_folder, write_report

__all__ = ["check_folder", "write_report"]
