"""All commands with their options; what they do is in the other files, loaded on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

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


def _complete(*kinds: str) -> Callable[[str], list[str]]:
    """Completes names of what ``dpb list`` lists."""

    def complete(incomplete: str) -> list[str]:
        from dpb_gym.cli.listing import names

        return [name for kind in kinds for name in names(kind) if name.startswith(incomplete)]

    return complete


BUDGET = "rho=R|eps=E,delta=D|none"
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(metavar="envs|agents|suites|data", help="What to list.")],
    json: Json = False,
) -> None:
    """List environments, agents, suites or data sets.

    Example: dpb list agents
    """
    from dpb_gym.cli import listing

    listing.list_kind(kind, json)


@app.command()
def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An environment, agent, suite or data set.",
            autocompletion=_complete("envs", "agents", "suites", "data"),
        ),
    ],
    budget: Annotated[
        str | None,
        typer.Option(help="What an agent promises at this budget: rho=0.5 or eps=1,delta=1e-5."),
    ] = None,
    json: Json = False,
) -> None:
    """Show everything about one environment, agent, suite or data set.

    Example: dpb show one-pass-linear --budget rho=0.1
    """
    from dpb_gym.cli import showing

    showing.show(id, json, budget)


@app.command()
def run(
    suite: Annotated[
        str | None,
        typer.Argument(
            help="Name of a suite, or a .yaml file. Not with --env.",
            autocompletion=_complete("suites"),
        ),
    ] = None,
    agents: Annotated[
        str | None, typer.Option(help="Only these agents: labels or names, comma-separated.")
    ] = None,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, comma-separated.")] = None,
    replicates: Annotated[int | None, typer.Option(help="Replicates per task.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
    backend: Annotated[str, typer.Option(metavar="loky|dask", help="Where to run.")] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="Address of the dask scheduler.")] = None,
    out: Annotated[
        str | None, typer.Option(help="Result directory; results/SUITE by default.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="Write the page of the result directory to this file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
    env: Annotated[
        str | None,
        typer.Option(help="Environment id, instead of a suite.", autocompletion=_complete("envs")),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            help="Agent to run on --env; may be repeated.", autocompletion=_complete("agents")
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar=BUDGET, help="With --env: budget of the agents that take one; may be repeated."
        ),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds T, with --env.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of replicate 0, with --env.")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="tensorboard=DIR|wandb=PROJECT|mlflow=URI",
            help="Log every checkpoint; may be repeated.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --env: a parameter of the environment, or of an agent as AGENT.KEY=VALUE; "
            "may be repeated.",
        ),
    ] = None,
) -> None:
    """Run a suite, or agents on one environment. Resumes what is in the result directory.

    Example: dpb run smoke --workers 2

    Example: dpb run --env DPB/Pricing-v0 --agent fixed-price --horizon 5000 --set dim=5
    """
    from dpb_gym.cli import running

    ad_hoc = {
        "agent": tuple(agent or ()),
        "budget": tuple(budget or ()),
        "horizon": horizon,
        "seed": seed,
        "set": tuple(set_ or ()),
    }
    status = running.run(
        suite, env, ad_hoc, agents, tasks, html, out, json, log or (), replicates=replicates,
        workers=workers, backend=backend, scheduler=scheduler, show=not quiet,
    )  # fmt: skip
    if status:
        raise typer.Exit(status)


@app.command()
def leaderboard(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Result directory.")],
    html: Annotated[str | None, typer.Option(help="Write the page to this file.")] = None,
    plot: Annotated[
        str | None, typer.Option(help="Draw regret curves to this .png, .pdf or .svg file.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit every private agent first; reports are kept.")
    ] = False,
    runs: Annotated[int, typer.Option(help="Runs in each world of an audit.")] = 2000,
    json: Json = False,
) -> None:
    """Print the table of a result directory; write the page and the regret curves.

    Example: dpb leaderboard results/smoke --html leaderboard.html --plot regret.png
    """
    from dpb_gym.cli import results

    results.leaderboard(directory, html, plot, json, runs if audit else None)


@app.command()
def verify(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Result directory.")],
    sample: Annotated[
        int,
        typer.Option(help="Cells to compute again of each imported row, and of all others."),
    ] = 3,
    seed: Annotated[int | None, typer.Option(help="Chooses the sample; random by default.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Take the sample from this agent's cells alone.")
    ] = None,
    json: Json = False,
) -> None:
    """Check all digests, and compute cells again, bit for bit.

    Exit status 1 if something differs, or while a row is not confirmed.

    Example: dpb verify results/smoke --sample 5
    """
    from dpb_gym.cli import results

    if not results.verify(directory, sample, seed, agent, json):
        raise typer.Exit(1)


@app.command()
def submit(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Result directory.")],
    agent: Annotated[str, typer.Option(help="Registered name, or label, of the agent.")],
    out: Annotated[str | None, typer.Option(help="Archive, .zip; AGENT.zip by default.")] = None,
    by: Annotated[
        str | None, typer.Option(help="Who states the results; the agent's package by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Pack an agent's results, guarantee and source reference into one archive.

    Example: dpb submit results/dpb-bench-v1 --agent my-agent --out my-agent.zip
    """
    from dpb_gym.cli import submitting

    submitting.submit(directory, agent, out, by, json)


@app.command("import")
def import_(
    archive: Annotated[str, typer.Argument(metavar="FILE", help="What dpb submit wrote.")],
    into: Annotated[str, typer.Option(metavar="DIR", help="Result directory to add it to.")],
    json: Json = False,
) -> None:
    """Add a submission to a result directory: all of it or nothing.

    Example: dpb import my-agent.zip --into results/dpb-bench-v1
    """
    from dpb_gym.cli import submitting

    submitting.import_(archive, into, json)


@app.command()
def cost(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Result directory.")],
    rounds: Annotated[
        float | None, typer.Option(help="Agent rounds to extrapolate to, e.g. 1e9.")
    ] = None,
    cores: Annotated[int, typer.Option(help="Cores to spread them over.")] = 1,
    json: Json = False,
) -> None:
    """Print what a result directory cost per agent, and what a larger run would.

    Example: dpb cost results/smoke --rounds 1e9 --cores 64
    """
    from dpb_gym.cli import costing

    costing.cost(directory, rounds, cores, json)


@app.command("cost-of-privacy")
def cost_of_privacy(
    source: Annotated[
        str, typer.Argument(metavar="FILE|ENV", help="A log, .csv or .parquet; or an environment.")
    ],
    problem: Annotated[
        str | None,
        typer.Option(metavar="pricing|assortment|recommendation", help="What the log is of."),
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(metavar=BUDGET, help="Budget; may be repeated.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A column of the log (price=rate, features=[term,score]), or a parameter of the "
            "environment; may be repeated.",
        ),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Customers T.")] = None,
    replicates: Annotated[int, typer.Option(help="Replicates.")] = 20,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
    html: Annotated[str | None, typer.Option(help="Write a page to this file.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw to this .png, .pdf or .svg file.")] = None,
    json: Json = False,
) -> None:
    """Say what privacy would cost on a log or an environment, in percent of what is earned.

    Example: dpb cost-of-privacy loans.csv --problem pricing --set bought=sold --set features=[term]
    """
    from dpb_gym.cli import costing

    costing.cost_of_privacy(
        source, problem, budget or [], set_ or [], html, plot, json, horizon=horizon,
        replicates=replicates, workers=workers,
    )  # fmt: skip


@app.command()
def tune(
    agents: Annotated[list[str], typer.Argument(metavar="AGENT...", help="Registered agents.")],
    env: Annotated[str, typer.Option(help="Environment id.")],
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar=BUDGET, help="Budget to tune at; may be repeated."),
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds T.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the environment, or a fixed one of an agent as "
            "AGENT.KEY=VALUE; may be repeated.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[AGENT.]KEY=[V,V]",
            help="Values to try, instead of the agent's own grid; may be repeated.",
        ),
    ] = None,
    points: Annotated[
        int, typer.Option(min=0, help="Most points per agent and budget; 0 for all.")
    ] = 32,
    replicates: Annotated[int, typer.Option(help="Tuning replicates, the same for all.")] = 20,
    seed: Annotated[int, typer.Option(help="First tuning seed, 1000000 to 1999999.")] = 1_000_000,
    out: Annotated[
        str | None, typer.Option(help="Result directory; results/tune-... by default. Resumes.")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Folder of the recipes; OUT/recipes by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Tune agents with the same effort each, on tuning seeds only, and write recipes.

    Example: dpb tune lin-ucb --env DPB/Recommendation-v0 --grid 'alpha=[0.1, 0.5, 1]'
    """
    from dpb_gym.cli import tuning

    status = tuning.run(
        agents, env, budget or (), set_ or (), grid or (), json, horizon=horizon,
        points=points or None, replicates=replicates, seed=seed, out=out, recipes=recipes,
        workers=workers, progress=False if quiet else None,
    )  # fmt: skip
    if status:
        raise typer.Exit(status)


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(
            metavar="PAPER[/FIGURE]|FILE.yaml",
            help="private-assortment, private-pricing, adaprivate-ts, a package's, or a file.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option(help="Folder; reproductions/PAPER by default. Resumes.")
    ] = None,
    replicates: Annotated[int | None, typer.Option(help="Instead of the figures' own.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version: checks that everything runs.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core by default.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[TASK.]KEY=VALUE",
            help="Parameter of the environments, or of one task's (data=FILE); may be repeated.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Run a paper's figures and tables and judge its claims: HOLDS, CONDITIONAL or FAILS.

    Example: dpb reproduce private-assortment/fig4 --replicates 10
    """
    from dpb_gym.cli import reproducing

    status = reproducing.run(target, out, replicates, quick, workers, set_ or [], quiet, json)
    if status:
        raise typer.Exit(status)


@app.command()
def audit(
    agent: Annotated[
        str, typer.Argument(help="A registered agent.", autocompletion=_complete("agents"))
    ],
    budget: Annotated[
        str | None, typer.Option(metavar=BUDGET, help="Budget; rho=0.5 by default.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs in each of the two worlds.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of customers and agents.")] = 0,
    env: Annotated[
        str | None, typer.Option(help="Environment id; a small one of its kind by default.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the agent; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Run an agent on two neighbouring worlds and bound its privacy loss from below.

    Exit status 1 if the claim is refuted. Audit where there is something to see, rho 0.5 to 2.

    Example: dpb audit adaprivate-ts --budget rho=0.5 --runs 2000
    """
    from dpb_gym.cli import auditing

    if not auditing.audit(agent, budget, runs, seed, env, set_ or [], json):
        raise typer.Exit(1)


Name = Annotated[str, typer.Argument(help="Name of a data set; see: dpb data list")]


@data.command("list")
def data_list(json: Json = False) -> None:
    """List the data sets and where they lie.

    Example: dpb data list
    """
    from dpb_gym.cli import datasets

    datasets.list_all(json)


@data.command("fetch")
def data_fetch(name: Name) -> None:
    """Download a data set into the cache, and check it.

    Example: dpb data fetch ml-latest-small
    """
    from dpb_gym.cli import datasets

    datasets.fetch(name)


@data.command("path")
def data_path(name: Name) -> None:
    """Print where a data set lies.

    Example: dpb data path ml-latest-small
    """
    from dpb_gym.cli import datasets

    datasets.path(name)


@data.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="Name of a data set, or a path.")],
    json: Json = False,
) -> None:
    """Check a data set: check sums, format, every value, counts.

    Example: dpb data check ml-latest-small
    """
    from dpb_gym.cli import datasets

    if not datasets.check(name, json):
        raise typer.Exit(1)
