import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_core.errors import RequestError, RequestTypeError
from contextpilot_integrations.session import current_session, session


def test_without_a_block_there_is_no_session():
    assert current_session() is None


def test_names_the_session_inside_and_restores_outside():
    with session("outer") as name:
        assert name == current_session() == "outer"
        with session("inner"):
            assert current_session() == "inner"
        assert current_session() == "outer"
    assert current_session() is None


def test_an_error_inside_restores_too():
    with pytest.raises(ZeroDivisionError), session("u"):
        _ = 1 / 0
    assert current_session() is None


def test_threads_do_not_see_each_other():
    with session("mine"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_session).result() is None


def test_tasks_keep_their_own():
    async def ask(name: str) -> str | None:
        with session(name):
            await asyncio.sleep(0)
            return current_session()

    async def both() -> list[str | None]:
        return await asyncio.gather(ask("a"), ask("b"))

    assert asyncio.run(both()) == ["a", "b"]


def test_refuses_what_is_no_name():
    with pytest.raises(RequestError, match="is empty"), session(""):
        pass
    with pytest.raises(RequestTypeError, match="must be a str, got int"), session(7):  # type: ignore[arg-type]
        pass
