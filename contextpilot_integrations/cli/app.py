"""The commands of ``contextpilot-rag``; needs the extra ``cli``."""

from importlib.metadata import version
from typing import Annotated

import typer

from contextpilot_integrations.cli.demo import demo
from contextpilot_integrations.cli.doctor import doctor
from contextpilot_integrations.cli.gate import gate
from contextpilot_integrations.cli.replay import replay

DISTRIBUTION = "contextpilot-rag"

app = typer.Typer(
    name=DISTRIBUTION,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plans retrieval-augmented prompts so that a server's prefix cache is hit more often.",
)
app.command("replay")(replay)
app.command("doctor")(doctor)
app.command("gate")(gate)
app.command("demo")(demo)  # needs the extra of its name


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass
