"""The parts of pipelines, for whoever has the frameworks."""

import pytest

from tests.integrations import probed_pipelines


@pytest.fixture
def lc():
    return probed_pipelines.langchain_parts()


@pytest.fixture
def li():
    return probed_pipelines.llama_index_parts()
