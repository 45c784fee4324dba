"""What all holders of state share: copies are the object itself, and nothing is pickled."""

import copy
import pickle

import pytest

from contextpilot_core import ReuseEngine, WindowScheduler
from contextpilot_core.types import OnePerProcess

HOLDERS = [OnePerProcess(), ReuseEngine(), WindowScheduler(ReuseEngine())]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_copies_share_the_state(holder: OnePerProcess) -> None:
    assert copy.copy(holder) is holder
    assert copy.deepcopy({"engine": [holder]})["engine"][0] is holder


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_no_state_is_lost_in_a_pickle(holder: OnePerProcess) -> None:
    with pytest.raises(TypeError, match=f"{type(holder).__name__} cannot be pickled.*one per process"):
        pickle.dumps(holder)
