"""The commands of ``dpb``; each is a function whose signature says its options."""

from __future__ import annotations

import typer

from dpb_gym.cli import catalogue, results, running

app = typer.Typer(
    name="dpb",
    help="Compare private and non-private bandit agents. Errors are one line; --debug anywhere "
    "shows the traceback.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(help="Data sets: list, fetch, find and check them.", add_completion=False)
app.add_typer(data, name="data")


def _version(value: bool) -> None:
    if value:
        import dpb_gym

        print(f"dpb-gym {dpb_gym.__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Compare private and non-private bandit agents. --debug anywhere shows tracebacks."""


COMMANDS = (
    *(catalogue.list_, catalogue.show, running.run, results.leaderboard, results.verify),
    *(results.submit, results.import_, results.remove, results.cost, results.cost_of_privacy),
    *(running.tune, running.reproduce, results.audit),
)
OF_DATA = (catalogue.list_data, catalogue.fetch, catalogue.path, catalogue.check)
for group, functions in ((app, COMMANDS), (data, OF_DATA)):
    for function in functions:
        name = function.__name__.removesuffix("_data").strip("_").replace("_", "-")
        group.command(name)(function)
