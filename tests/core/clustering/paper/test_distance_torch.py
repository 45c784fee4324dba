"""The tensor backend keeps the contract of the numpy one."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextpilot_core.clustering.paper.distance_torch as module
from contextpilot_core.clustering.paper.distance import pairwise_distances
from contextpilot_core.errors import MissingExtraError, TooManyContextsError
from tests.conftest import require

contexts = st.lists(st.lists(st.integers(0, 9), max_size=7, unique=True), max_size=10)


@settings(deadline=None)
@given(given_contexts=contexts, alpha=st.sampled_from([0.001, 0.01]), chunk=st.sampled_from([1, 40, 1 << 20]))
def test_equals_numpy(given_contexts: list[list[int]], alpha: float, chunk: int) -> None:
    torch = require("torch")
    expected = pairwise_distances(given_contexts, alpha).tolist()
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_CHUNK", chunk)
            result = module.pairwise_distances(given_contexts, alpha, device=device)
        assert result.device.type == device
        assert result.cpu().tolist() == expected


def test_too_many_contexts_name_the_greedy_strategy() -> None:
    require("torch")
    with pytest.raises(TooManyContextsError, match=r"20001 contexts.*20000.*greedy"):
        module.pairwise_distances([[1]] * 20_001)


def test_without_torch_the_error_holds_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'contextpilot-rag\[torch\]'"):
        module.pairwise_distances([[1], [2]])
