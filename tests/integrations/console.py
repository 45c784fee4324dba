"""The console script as a person runs it: in a process of its own."""

import subprocess
import sys

MAIN = "from contextpilot_integrations.cli.main import main; main()"


def run(*arguments: str, before: str = "", timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """Run ``contextpilot-rag``; ``before`` is executed first."""
    command = [sys.executable, "-c", f"{before}\nimport sys\nsys.argv[0] = 'contextpilot-rag'\n{MAIN}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout)
