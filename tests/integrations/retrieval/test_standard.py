"""LangChain's own tests of retrievers, on both indexes."""

import pytest

from tests.conftest import require

pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")
pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from langchain_tests.integration_tests import RetrieversIntegrationTests  # noqa: E402

from contextpilot_integrations.retrieval import Bm25Index, FaissIndex  # noqa: E402
from contextpilot_integrations.retrieval.langchain_retriever import IndexRetriever  # noqa: E402
from tests.integrations.retrieval_indexes import TEXTS, letters  # noqa: E402

pytestmark = [
    pytest.mark.asyncio,  # the suite has tests of both kinds, and marks neither
    pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio':pytest.PytestWarning"),
]


class TestOnBm25(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return IndexRetriever

    @property
    def retriever_constructor_params(self):
        require("rank_bm25")
        return {"index": Bm25Index(TEXTS)}

    @property
    def retriever_query_example(self):
        return "milk and cheese"


class TestOnFaiss(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return IndexRetriever

    @property
    def retriever_constructor_params(self):
        require("faiss")
        return {"index": FaissIndex(TEXTS, letters)}

    @property
    def retriever_query_example(self):
        return "milk and cheese"
