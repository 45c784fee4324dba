"""Work in a forked child of the test, and what it returned there."""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns in a child; its end runs nothing of pytest. Fails as the child does."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = (True, work())
        except BaseException:  # noqa: BLE001  # the parent raises it
            answer = (False, traceback.format_exc())
        os.write(writer, pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        done, value = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert done, value
    return value
