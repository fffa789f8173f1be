"""`evaluate`: compare agents on one environment, in Python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpb_gym import validation
from dpb_gym.envs.catalogue import environment
from dpb_gym.errors import DPBError, ParameterError, SuiteError
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation.cells import CellResult, plain
from dpb_gym.evaluation.checkpoints import Checkpoints, resolve_checkpoints
from dpb_gym.evaluation.entries import resolve_agents, slug
from dpb_gym.evaluation.parallel import check_workers
from dpb_gym.evaluation.planning import plan_entries
from dpb_gym.evaluation.result import Result, raise_if_all_failed
from dpb_gym.evaluation.session import run_in_memory
from dpb_gym.evaluation.suite import SEED_SPAN, Suite, SuiteTask
from dpb_gym.streams import check_seed

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget

LARGEST_BLOCK = 64
AD_HOC = "ad-hoc"


def evaluate(
    env_id: str,
    agents: Any,
    horizon: int | None = None,
    replicates: int = 10,
    seed: int = 0,
    checkpoints: Checkpoints = "log",
    env_kwargs: Mapping[str, Any] | None = None,
    budgets: Sequence[Budget] | Budget | None = None,
    workers: int | None = 1,
    progress: bool | Callable[[int, int], Any] | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
) -> Result:
    """Runs agents on one environment, all on the same customers, and compares them.

    Args:
        env_id: Environment id, e.g. ``"DPB/Assortment-v0"``.
        agents: A mapping from labels to agents, a list of agents, or one agent. An agent
            is a registered name, ``(name, budget)``, ``(name, budget, parameters)``, an
            agent class, or a function without arguments that makes an agent.
        horizon: Rounds T; the environment's default if not given.
        replicates: Independent replicates, at least 1.
        seed: Replicate i has seed ``seed + i``.
        checkpoints: Recorded rounds: ``"log"``, ``"all"``, a number, or a list of rounds;
            the last round is always recorded.
        env_kwargs: Parameters of the environment.
        budgets: Budgets of the agents that need one and were given none: each of them
            runs once per budget.
        workers: Processes; None for one per core. The results are the same for any number.
        progress: True for progress bars, False for silence, or a function of (rounds done,
            rounds in all). By default bars on a terminal, after two seconds.
        backend: ``"loky"`` for this machine, ``"dask"`` for a cluster; then `workers` says
            into how many blocks the replicates are divided at least.
        scheduler: Address of the dask scheduler.

    Returns:
        The results. An agent that breaks down costs its companions nothing: it is left
        out with a warning and listed in ``result.failures``.

    Raises:
        UnknownNameError: If the environment or an agent is not registered.
        ParameterError: If a parameter is unknown or out of range.
        BudgetError: If a budget is invalid.
        AgentError: If an agent does not support the environment, or all agents fail.
        DataError: If the environment's data are missing.
        MissingExtraError: If the backend's packages are not installed.

    Example:
        >>> import dpb_gym
        >>> result = dpb_gym.evaluate(
        ...     "DPB/Pricing-v0", ["random", "oracle"], horizon=100, replicates=2
        ... )
        >>> result.final_regret("oracle").tolist()
        [0.0, 0.0]
    """
    kwargs = dict(env_kwargs or {})
    replicates = validation.integer("replicates", replicates, 1, SEED_SPAN)
    workers = check_workers(workers)
    if horizon is None and "horizon" not in kwargs:
        horizon = int(environment(env_id).parameters()["horizon"])
    elif horizon is None:
        horizon = kwargs.pop("horizon")
    elif "horizon" in kwargs:
        raise ParameterError("give the horizon once: as horizon= or in env_kwargs")
    block = min(LARGEST_BLOCK, -(-replicates // workers))
    suite = ad_hoc_suite(env_id, kwargs, horizon, replicates, seed, checkpoints, block)
    task = suite.task_list[0]
    task.problem()
    entries = resolve_agents(agents, task.kind, budgets)  # type: ignore[arg-type]
    plan = plan_entries(task, entries)
    show = sys.stderr.isatty() if progress is None else progress
    results, failures = run_in_memory(
        suite, [plan], workers=workers, backend=backend, scheduler=scheduler, show=show
    )
    broken = {failure.entry.title for _, failure in failures}
    # An agent that failed in one block only would have too few replicates.
    results = [r for r in results if _title(r) not in broken]
    raise_if_all_failed(failures, len(results))
    for title in sorted(broken):
        first = next(f for _, f in failures if f.entry.title == title)
        warnings.warn(first.message, RuntimeWarning, stacklevel=2)
    return Result(suite, results, failures, revision=origin.revision())


def _title(result: CellResult) -> str:
    cell = result.cell
    return cell.agent if cell.config["budget"] is None else f"{cell.agent} ({cell.budget})"


def ad_hoc_suite(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    horizon: int,
    replicates: int,
    seed: int = 0,
    checkpoints: Checkpoints = "log",
    block: int = 10,
) -> Suite:
    """A suite of one task, for comparisons that are not kept as a file.

    Raises:
        UnknownNameError: If the environment is unknown.
        ParameterError: If a parameter is out of range.
    """
    known = environment(env_id)
    horizon = validation.integer("horizon", horizon, 2)
    seed = check_seed(seed)
    rounds = resolve_checkpoints(checkpoints, horizon)
    stored = checkpoints if isinstance(checkpoints, (str, int)) else rounds
    kwargs = plain(dict(env_kwargs), "env_kwargs")
    try:
        task = SuiteTask(
            name=slug(known.id.removeprefix("DPB/").removesuffix("-v0")),
            env=known.id,
            env_kwargs=kwargs,
            horizon=horizon,
            description=known.summary,
        )
        return Suite(
            name=AD_HOC,
            title=known.id,
            seed=seed,
            tuning_seed=seed + SEED_SPAN,
            normalisation_seed=seed + 2 * SEED_SPAN,
            replicates=replicates,
            block=block,
            checkpoints=stored,
            tasks=(task,),
        )
    except (ValueError, SuiteError) as error:
        if isinstance(error, DPBError):
            raise
        raise ParameterError(f"not a valid run: {error}") from error
