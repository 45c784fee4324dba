import pytest

from contextpilot_integrations.demo.results import Run
from tests.integrations.demo_runs import made_up_run


@pytest.fixture
def run() -> Run:
    return made_up_run()
