"""What importing the LangChain integration needs, loads and says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from contextpilot_core import MissingExtraError
from tests.conftest import require

require("langchain_core")

import contextpilot_integrations.langchain as package  # noqa: E402

ROOT = Path(__file__).parents[3]
CORE_NAMES = sorted(set(package.__all__) - {"ContextPilotMiddleware"})


def run(code):
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)


def without(*modules):
    """Code that makes these packages absent."""
    return f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"


def test_all_but_the_middleware_work_with_langchain_core_alone():
    names = ", ".join(CORE_NAMES)
    code = without("langchain", "langchain_classic", "langchain_community", "langgraph", "llama_index", "openai")
    done = run(f"{code}from contextpilot_integrations.langchain import {names}\nprint('ok')")
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(
    ("absent", "code", "extra"),
    [
        ("langchain_core", "import contextpilot_integrations.langchain", "langchain"),
        ("langchain_core", "from contextpilot_integrations.langchain import ContextPilotRetriever", "langchain"),
        ("langchain", "from contextpilot_integrations.langchain import ContextPilotMiddleware", "langchain-agents"),
        ("langchain", "import contextpilot_integrations.langchain.agent.middleware", "langchain-agents"),
    ],
)
def test_a_missing_extra_names_the_line_that_brings_it(absent, code, extra):
    done = run(without(absent) + code)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert MissingExtraError.__name__ in last
    assert last.endswith(f'run: pip install "contextpilot-rag[{extra}]"')


def test_the_other_framework_is_not_imported():
    require("langchain")
    code = "import contextpilot_integrations.langchain as p, sys\nfor n in p.__all__: getattr(p, n)\n"
    done = run(f"{code}print(*[m for m in sys.modules if m.split('.')[0] in ('llama_index', 'langchain_community')])")
    assert done.stdout == "\n" or done.stderr.endswith('langchain-agents]"\n'), done.stderr


def test_names():
    assert package.__all__ == sorted(package.__all__)
    assert all(getattr(package, name).__name__ == name for name in CORE_NAMES)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_nothing_mentions_langchain_community():
    sources = [*(ROOT / "contextpilot_integrations").rglob("*.py"), ROOT / "pyproject.toml"]
    assert not [path.name for path in sources if re.search(r"langchain.community", path.read_text())]
