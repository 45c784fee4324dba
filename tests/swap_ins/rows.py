"""All rows of the table: every pipeline run without and with us. Needs both frameworks."""

from functools import cache

from tests.swap_ins import langchain, llama_index
from tests.swap_ins.measure import Row, row


@cache
def rows() -> tuple[Row, ...]:
    given = [*[(each, langchain.run) for each in langchain.LANGCHAIN]]
    return tuple(
        [row(each, run) for each, run in [*given, *[(each, llama_index.run) for each in llama_index.LLAMA_INDEX]]]
    )
