"""The console script ``contextpilot-rag``: in a core-only install it says which extra it needs."""

import sys
from typing import NoReturn

from contextpilot_core import ContextPilotError
from contextpilot_integrations import extras


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 2 refused, with one line that says why; `gate` has a 1 of its own."""
    try:
        for module in ("typer", "rich"):
            extras.load(module, extra="cli")
        from contextpilot_integrations.cli.app import DISTRIBUTION, app

        app(prog_name=DISTRIBUTION)  # also as a module: completion works for this name
    except ContextPilotError as error:
        sys.stderr.write(f"contextpilot-rag: {error}\n")
        sys.exit(2)
    sys.exit(0)
