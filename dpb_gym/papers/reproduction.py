"""`reproduce`: run the figures of a paper and judge what the paper claims."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import DataError
from dpb_gym.files import write_file
from dpb_gym.papers.claims import Claim
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.figure_output import PAGE, html, print_figure, write
from dpb_gym.papers.figure_result import FigureResult
from dpb_gym.papers.figure_spec import Figure, load_figures
from dpb_gym.papers.verdicts import Judgement, judge
from dpb_gym.planning.costs import Forecast, forecast
from dpb_gym.results.row_result import collect
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.running.progress import Show
from dpb_gym.suites import provenance
from dpb_gym.suites.schema import plain

if TYPE_CHECKING:
    from rich.console import Console

RESULTS = "results"
MEASURED = "measured"
INDEX = "index.html"


@dataclass(frozen=True)
class Reproduction:
    """A reproduced paper, or one figure of it.

    Attributes:
        target: Paper, figure or file.
        folder: Folder of all output.
        figures: The figures.
        page: Page with all figures.
    """

    target: str
    folder: Path
    figures: tuple[FigureResult, ...]
    page: Path

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict of every claim by ``figure/claim``."""
        return {
            f"{one.figure.figure}/{judgement.claim.id}": judgement.verdict
            for one in self.figures
            for judgement in one.judgements
        }

    @property
    def failures(self) -> list[str]:
        """Messages of all cells that failed."""
        return [message for one in self.figures for message in one.failures]

    def table(self, console: Console | None = None) -> None:
        """Print verdicts, tables and guarantees of every figure."""
        for one in self.figures:
            if not one.skipped:
                print_figure(one, console)


def reproduce(
    target: str,
    out: str | os.PathLike[str] | None = None,
    *,
    replicates: int | None = None,
    quick: bool = False,
    workers: int | None = None,
    progress: bool | Callable[[int, int], Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Reproduction:
    """Run the figures of a paper, judge its claims, and write pictures, data and verdicts.

    Cells that are in the folder are not computed again, so an interrupted run resumes.

    Args:
        target: A paper (``"private-assortment"``), a figure (``"private-assortment/fig4"``) or
            the path of a figure's ``.yaml`` file.
        out: Folder; ``reproductions/PAPER`` by default. Each figure has a folder in it.
        replicates: Replicates; those of the figures by default.
        quick: Whether to run the figures' quick versions, which check that everything runs.
        workers: Processes; the number of usable cores by default.
        progress: True for progress bars, False for silence, or a function of (rounds done,
            rounds in all); by default bars on a terminal.
        env_kwargs: Parameters of the environments that replace those of the figures, e.g. the
            path of a data file; ``"TASK.parameter"`` changes one task only.

    Returns:
        The reproduction. Cells that failed are in `failures`; claims that need them are not
        decided.

    Raises:
        UnknownNameError: If there is no such target or task.
        ParameterError: If an argument or a parameter is out of range.
        ResultError: If the folder holds other results, or cannot be written.
        DataError: If data are missing.
    """
    figures = _versions(target, quick, env_kwargs)
    paper = figures[0].paper
    folder = Path(f"reproductions/{paper}" if out is None else out)
    results = []
    for figure in figures:
        small = "-quick" if quick else ""
        shared = None if figure.results is None else folder / f"{RESULTS}-{figure.results}{small}"
        own = folder / (figure.figure + small)
        results.append(run_figure(figure, own, replicates, workers, progress, shared))
    if len(results) == 1:
        if results[0].skipped:
            raise DataError(f"{figures[0].target}: {results[0].skipped}")
        page = results[0].folder / PAGE
    else:
        page = folder / INDEX
        shown = [result for result in results if not result.skipped]
        write_file(page, html(shown, f"Reproduction of {paper}").encode())
    return Reproduction(target, folder, tuple(results), page)


def forecast_figures(
    target: str,
    *,
    replicates: int | None = None,
    quick: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    seconds: float = 1.0,
) -> list[Forecast]:
    """Forecast time, size and memory of `reproduce`, a row per task that has its data.

    Figures that share results are counted once. A study after the run is not counted.

    Args:
        target: See `reproduce`, as for the next three arguments.
        replicates: Replicates.
        quick: Whether it is the quick version.
        env_kwargs: Parameters of the environments.
        seconds: See `dpb_gym.planning.costs.forecast`.

    Raises:
        UnknownNameError: If there is no such target or task.
        ParameterError: If an argument or a parameter is out of range.
        DataError: If data are damaged.
    """
    rows: list[Forecast] = []
    counted: dict[str, set[tuple[str, str, str]]] = {}
    for figure in _versions(target, quick, env_kwargs):
        seen = counted.setdefault(figure.results or figure.target, set())
        plans = []
        for plan in plan_suite(figure.suite):
            keys = {(plan.task.name, run.title, str(run.budget)): run for run in plan.runs}
            plans.append(replace(plan, runs=tuple(run for k, run in keys.items() if k not in seen)))
            seen.update(keys)
        rows += [
            replace(row, task=f"{figure.figure}/{row.task}")
            for row in forecast(figure.suite, plans, replicates, seconds)
        ]
    return rows


def _versions(target: str, quick: bool, env_kwargs: Mapping[str, Any] | None) -> list[Figure]:
    """Return the figures of a target, in their quick version, with changed environments."""
    changes = plain(dict(env_kwargs or {}), "env_kwargs")
    figures = [one.quick_version() if quick else one for one in load_figures(target)]
    return [one.with_environment(changes) if changes else one for one in figures]


def run_figure(
    figure: Figure,
    folder: Path,
    replicates: int | None = None,
    workers: int | None = None,
    show: Show = False,
    results: Path | None = None,
) -> FigureResult:
    """Run one figure, judge it, and write it to its folder; see `reproduce`.

    `results` is the folder of the cells, a part of `folder` by default.
    """
    suite = figure.suite
    results = results or folder / (RESULTS if figure.study is None else MEASURED)
    plans = plan_suite(suite)
    missing = {plan.task.name: plan.missing for plan in plans if plan.missing}
    if len(missing) == len(plans):
        return FigureResult(figure, folder, skipped="; ".join(dict.fromkeys(missing.values())))
    plans = [replace(plan, study=figure.study) for plan in plans]
    report = run_plan(suite, plans, results, replicates=replicates, workers=workers, show=show)
    curves = figure.curves_of(collect(report.results()))
    failures = tuple(map(str, report.failures))
    count = suite.replicates if replicates is None else replicates
    facts = {
        "command": provenance.command_line(),
        "replicates": f"{count}, seeds {suite.seed} to {suite.seed + count - 1}",
        "intervals": "95%, Student's t, paired over replicates (jackknife)",
        "versions": ", ".join(f"{k} {v}" for k, v in provenance.versions().items()),
        "revision": provenance.revision() or "unknown",
    }
    if missing:
        facts["left out"] = "; ".join(f"{task}: {why}" for task, why in missing.items())
    if failures:
        facts["failed"] = "; ".join(failures)
    judgements = judge_all(figure, curves, count)
    result = FigureResult(
        figure, folder, judgements, tuple(curves), failures, facts, report.seconds, report.rounds
    )
    write(result)
    return result


def judge_all(figure: Figure, curves: Sequence[Curve], replicates: int) -> tuple[Judgement, ...]:
    """Judge every claim with all replicates, and with the figure's smaller samples."""

    def judged(claim: Claim, some: Sequence[Curve]) -> Judgement:
        return judge(claim, some, figure.variants, figure.tables)

    sizes = [size for size in figure.samples if size < replicates]
    smaller = {size: [curve.first(size) for curve in curves] for size in sizes}
    return tuple(
        replace(
            judged(claim, curves),
            samples={size: judged(claim, some) for size, some in smaller.items()},
        )
        for claim in figure.judged
    )
