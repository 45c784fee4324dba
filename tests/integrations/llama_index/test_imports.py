"""What importing the LlamaIndex integration needs, loads and says."""

import subprocess
import sys

from tests.conftest import require

require("llama_index.core")

from contextpilot_integrations import llama_index as package  # noqa: E402


def test_only_what_is_needed_is_imported():
    code = (
        "import sys, contextpilot_integrations.llama_index as p; "
        "print(sorted(p.__all__) == p.__all__, any(n.startswith('langchain') for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    assert all(hasattr(package, name) for name in package.__all__)


def test_an_absent_llama_index_says_what_to_install():
    code = "import sys; sys.modules['llama_index'] = None; import contextpilot_integrations.llama_index"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "contextpilot-rag[llama-index]"' in done.stderr
