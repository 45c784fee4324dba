"""LangChain's own tests of a retriever."""

import pytest

from tests.conftest import require

require("pytest_asyncio")
require("langchain_tests")

from langchain_tests.integration_tests import RetrieversIntegrationTests  # noqa: E402

from contextpilot_integrations.langchain import ContextPilotRetriever  # noqa: E402
from tests.integrations.langchain_fakes import Lists  # noqa: E402

pytestmark = [
    pytest.mark.asyncio,  # the suite has tests of both kinds, and marks neither
    pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio':pytest.PytestWarning"),
]


class TestContextPilotRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return ContextPilotRetriever

    @property
    def retriever_constructor_params(self):
        return {"base_retriever": Lists()}

    @property
    def retriever_query_example(self):
        return "A what is known?"
