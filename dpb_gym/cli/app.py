"""The commands of ``dpb``; each is a function whose signature says its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from dpb_gym.cli.auditing import audit
from dpb_gym.cli.costing import cost, cost_of_privacy
from dpb_gym.cli.datasets import check, fetch, list_all, path
from dpb_gym.cli.listing import list_kind
from dpb_gym.cli.reproducing import reproduce
from dpb_gym.cli.results import leaderboard, verify
from dpb_gym.cli.running import run
from dpb_gym.cli.showing import show
from dpb_gym.cli.submitting import import_, remove, submit
from dpb_gym.cli.tuning import tune

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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compare private and non-private bandit agents. --debug anywhere shows tracebacks."""


COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_kind,
    "show": show,
    "run": run,
    "leaderboard": leaderboard,
    "verify": verify,
    "submit": submit,
    "import": import_,
    "remove": remove,
    "cost": cost,
    "cost-of-privacy": cost_of_privacy,
    "tune": tune,
    "reproduce": reproduce,
    "audit": audit,
}
for name, function in COMMANDS.items():
    app.command(name)(function)
OF_DATA: dict[str, Callable[..., None]] = {
    "list": list_all, "fetch": fetch, "path": path, "check": check
}  # fmt: skip
for name, function in OF_DATA.items():
    data.command(name)(function)
