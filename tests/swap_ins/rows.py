"""All rows of the table: every pipeline run without and with us. Needs both frameworks."""

from functools import cache

from tests.swap_ins import langchain, llama_index
from tests.swap_ins.measure import Row, row


@cache
def rows() -> tuple[Row, ...]:
    return tuple([row(each, module.run) for module in (langchain, llama_index) for each in module.PIPELINES])
