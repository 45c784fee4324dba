"""``contextpilot-rag`` inside this process, as a user types it."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from unittest import mock

import pytest

from contextpilot_integrations.cli import main
from tests.conftest import require


@dataclass
class Done:
    exit_code: int
    stdout: str
    stderr: str


def run(*arguments: str) -> Done:
    require("typer")
    require("rich")
    out, err = StringIO(), StringIO()
    with (
        mock.patch.object(sys, "argv", ["contextpilot-rag", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())
