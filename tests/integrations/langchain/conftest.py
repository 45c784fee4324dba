"""Both ways of calling."""

import asyncio

import pytest


@pytest.fixture(params=["sync", "async"])
def run(request):
    def call(retriever, query, config=None, **options):
        if request.param == "sync":
            return retriever.invoke(query, config, **options)
        return asyncio.run(retriever.ainvoke(query, config, **options))

    return call
