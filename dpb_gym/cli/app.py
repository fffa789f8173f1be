"""The commands of ``dpb``; each is a function whose signature says its options."""

from __future__ import annotations

from collections.abc import Callable

import typer

from dpb_gym.cli import catalogue, costing, results, running

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


COMMANDS: dict[str, Callable[..., None]] = {
    "list": catalogue.list_kind,
    "show": catalogue.show,
    "run": running.run,
    "leaderboard": results.leaderboard,
    "verify": results.verify,
    "submit": results.submit,
    "import": results.import_,
    "remove": results.remove,
    "cost": costing.cost,
    "cost-of-privacy": costing.cost_of_privacy,
    "tune": running.tune,
    "reproduce": running.reproduce,
    "audit": results.audit,
}
OF_DATA: dict[str, Callable[..., None]] = {
    "list": catalogue.list_data,
    "fetch": catalogue.fetch,
    "path": catalogue.path,
    "check": catalogue.check,
}
for group, commands in ((app, COMMANDS), (data, OF_DATA)):
    for name, function in commands.items():
        group.command(name)(function)
