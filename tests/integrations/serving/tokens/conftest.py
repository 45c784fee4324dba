"""Small tokenizers, for whoever has the packages."""

import pytest

from contextpilot_integrations.serving.tokens import HuggingFaceTokens, PromptTokenizer
from tests.integrations.small_tokenizers import trained


@pytest.fixture(scope="module", params=["gpt2", "llama3"])
def tokenizer(request):
    return trained(request.param)


@pytest.fixture(scope="module", params=["gpt2", "llama3", "none"])
def any_tokenizer(request):
    return trained(request.param)


@pytest.fixture
def reader(tokenizer):
    return PromptTokenizer(HuggingFaceTokens(tokenizer))
