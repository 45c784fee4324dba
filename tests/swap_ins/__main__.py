"""Write the table of docs/swap-ins.md: ``python -m tests.swap_ins``."""

from tests.swap_ins.page import PAGE, with_table
from tests.swap_ins.rows import rows

PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows()), encoding="utf-8")
