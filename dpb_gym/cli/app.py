"""The application ``dpb``: one command per function, with options from its signature."""

from __future__ import annotations

import typer

import dpb_gym
from dpb_gym.cli import list_commands, result_commands, run_commands, serve_command

app = typer.Typer(
    name="dpb",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(
    help="Data sets: list, fetch, find and check them.\n\nExample: dpb data list",
    add_completion=False,
)
app.add_typer(data, name="data")


def _version(value: bool) -> None:
    if value:
        print(f"dpb-gym {dpb_gym.__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Compare private and non-private bandit agents. Errors are one line.

    --debug anywhere shows the traceback. "dpb help COMMAND" is "dpb COMMAND --help".

    Example: dpb run smoke --html leaderboard.html
    """


COMMANDS = (
    *(list_commands.list_, list_commands.show, run_commands.run, result_commands.leaderboard),
    *(result_commands.verify, result_commands.submit, result_commands.import_),
    *(result_commands.remove, result_commands.cost, result_commands.cost_of_privacy),
    *(run_commands.tune, run_commands.reproduce, list_commands.bounds),
    *(result_commands.audit, run_commands.warm),
    *(result_commands.certify, run_commands.outside, result_commands.advise),
    serve_command.serve,
)
DATA_COMMANDS = (
    list_commands.list_data,
    list_commands.fetch,
    list_commands.path,
    list_commands.check,
)
for group, functions in ((app, COMMANDS), (data, DATA_COMMANDS)):
    for function in functions:
        name = function.__name__.removesuffix("_data").strip("_").replace("_", "-")
        group.command(name)(function)
