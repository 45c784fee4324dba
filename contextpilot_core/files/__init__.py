"""Files that a user names: read with typed errors, and written for their owner alone."""

from contextpilot_core.files.reading import parse, read_json_lines, read_text
from contextpilot_core.files.writing import append_private, private_folder, write_private

__all__ = [
    "append_private",
    "parse",
    "private_folder",
    "read_json_lines",
    "read_text",
    "write_private",
]
