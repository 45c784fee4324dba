"""The commands of ``contextpilot-rag``; needs the extra ``cli``."""

from typing import Annotated

import typer

from contextpilot_core import __version__
from contextpilot_integrations.cli.demo import demo
from contextpilot_integrations.cli.doctor import doctor
from contextpilot_integrations.cli.gate import gate
from contextpilot_integrations.cli.replay import replay

DISTRIBUTION = "contextpilot-rag"

app = typer.Typer(
    name=DISTRIBUTION,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes show a flag as if it took a value
    help="Plans retrieval-augmented prompts so that a server's prefix cache is hit more often.",
)
# A line of each in the list: a longer one would be cut off.
app.command("replay", short_help="Replay a trace of retrievals, and report what is reused.")(replay)
app.command("doctor", short_help="Say why prompts in files do not share a prefix.")(doctor)
app.command("gate", short_help="Ask a model whether answers suffer.")(gate)
app.command("demo", short_help="Answer real questions, plain and with us.")(demo)  # needs the extra of its name


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{DISTRIBUTION} {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass
