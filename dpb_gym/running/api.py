"""`evaluate`: compare agents on one environment, in Python."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from pydantic import ValidationError

from dpb_gym import validation
from dpb_gym.envs.registration import environment
from dpb_gym.errors import AgentError, ParameterError, shown, unknown_parameter
from dpb_gym.privacy import Budget
from dpb_gym.registry import AgentSpec, spec_of
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.results.result import Result
from dpb_gym.running.agent_checks import checked
from dpb_gym.running.callbacks import Callback
from dpb_gym.running.execution import check_backend, execute, run_plan
from dpb_gym.running.plan import TaskPlan, make_jobs
from dpb_gym.streams import check_seed
from dpb_gym.suites.schema import raised
from dpb_gym.suites.spec import AgentRun, Task
from dpb_gym.suites.suite import SEED_SPAN, Checkpoints, Suite, resolve_checkpoints

LARGEST_BLOCK = 64
AD_HOC = "ad-hoc"


P = ParamSpec("P")
T = TypeVar("T")


def explains_env_kwargs(function: Callable[P, T]) -> Callable[P, T]:
    """Name `env_kwargs` in the error for a keyword argument that the function does not have."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in kwargs.items():
            if name not in known:
                pair = f"{{{name!r}: {shown(value)}}}"
                takes = f"parameters of the environment go into env_kwargs={pair}"
                raise unknown_parameter(f"{function.__name__}()", name, known, takes)
        return function(*args, **kwargs)

    return checked


@explains_env_kwargs
def evaluate(
    env_id: str,
    agents: Any,
    horizon: int | None = None,
    replicates: int = 10,
    seed: int = 0,
    checkpoints: Checkpoints = "log",
    env_kwargs: Mapping[str, Any] | None = None,
    budgets: Sequence[Budget | str] | Budget | str | None = None,
    workers: int | None = 1,
    progress: bool | Callable[[int, int], Any] | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    callbacks: Sequence[Callback] = (),
    out: str | os.PathLike[str] | None = None,
    isolate: bool = False,
) -> Result:
    """Run agents on one environment, all on the same customers, and compare them.

    Private agents of other packages are checked first, in about a second each: one that reads raw
    data or leaves a releaser unused fails (`dpb_gym.audits.replay_check`). The rows of those that
    pass say "not audited" until an audit of their code.

    Args:
        env_id: Environment id, e.g. ``"DPB/Assortment-v0"``.
        agents: A mapping from labels to agents, a list of agents, or one agent. An agent
            is a registered name, ``(name, budget)``, ``(name, budget, parameters)``, an
            agent class, a function without arguments that makes an agent, or an object with
            ``predict``, such as a trained model of Stable-Baselines3 (`dpb_gym.predictors`). For a
            model that learns meanwhile see `dpb_gym.learners.learner`.
        horizon: Rounds T; the environment's default if not given.
        replicates: Independent replicates, at least 1.
        seed: Replicate i has seed ``seed + i``.
        checkpoints: Recorded rounds: ``"log"``, ``"all"``, a number, or a list of rounds;
            the last round is always recorded.
        env_kwargs: Parameters of the environment.
        budgets: Budgets, as `Budget` or text (``"rho=0.5"``, ``"eps=1,delta=1e-5"``), of all
            agents that can take one and were given none: each of them runs once per budget.
            ``"none"`` among them adds a run without, where an agent can do without.
        workers: Processes; None for one per core. The results are the same for any number.
        progress: True for progress bars, False for silence, or a function of (rounds done,
            rounds in all). By default bars on a terminal, after one second.
        backend: ``"loky"`` for this machine, ``"dask"`` for a cluster; then `workers` says
            into how many blocks the replicates are divided at least.
        scheduler: Address of the dask scheduler.
        callbacks: Functions of a `dpb_gym.running.callbacks.Checkpoint`, called at every
            checkpoint of every agent, for example `TensorBoard`, `WandB` or `MLflow`.
        out: A result directory, or an address such as ``"s3://bucket/prefix"``, that stores every
            result when it is finished; the same call resumes an interrupted one.
        isolate: Whether the code of agents with a budget runs in processes that have neither raw
            data of other rounds nor noise (`dpb_gym.running.isolation`). The numbers of agents
            whose policy reads releases only are the same, bit for bit. A round takes some
            milliseconds more.

    Returns:
        The results. An agent that fails does not affect the others: it is left out with a
        warning and listed in ``result.failures``.

    Raises:
        UnknownNameError: If the environment or an agent is not registered.
        ParameterError: If a parameter is unknown or out of range.
        BudgetError: If a budget is invalid.
        AgentError: If an agent does not support the environment, or all agents fail.
        DataError: If the environment's data are missing.
        MissingExtraError: If the packages of the backend or of the address are not installed.
        ResultError: If `out` holds other results, is in use, or cannot be reached or written.

    Example:
        >>> import dpb_gym
        >>> result = dpb_gym.evaluate(
        ...     "DPB/Pricing-v0", ["random", "oracle"], horizon=100, replicates=2
        ... )
        >>> result.final_regret("oracle").tolist()
        [0.0, 0.0]
    """
    replicates = validation.integer("replicates", replicates, 1, SEED_SPAN)
    workers = check_backend(workers, backend, scheduler)
    suite, plan = plan_task(
        env_id, agents, horizon, replicates, seed, checkpoints, env_kwargs, budgets,
        block=min(LARGEST_BLOCK, -(-replicates // workers)),
    )  # fmt: skip
    options: dict[str, Any] = {
        "workers": workers,
        "backend": backend,
        "scheduler": scheduler,
        "show": progress,
        "callbacks": callbacks,
    }
    if out is None:
        jobs = make_jobs(suite, [plan], stored=False, isolate=isolate)
        jobs, refused = checked(jobs, progress)
        outcomes = execute(jobs, None, **options)
        failures = [*refused, *(one for one in outcomes if isinstance(one, Failure))]
        finished = [outcome for outcome in outcomes if isinstance(outcome, CellResult)]
    else:
        report = run_plan(suite, [plan], out, **options, isolate=isolate)
        failures = list(report.failures)
        finished = report.results()
    broken = {failure.cell.row: failure for failure in reversed(failures)}
    # An agent that failed in one block only would have too few replicates.
    results = [result for result in finished if result.cell.row not in broken]
    if failures and not results:
        raise AgentError(failures[0].message)
    for failure in broken.values():
        warnings.warn(failure.message, RuntimeWarning, stacklevel=2)
    return Result(suite, results, failures)


def plan_task(
    env_id: str,
    agents: Any,
    horizon: int | None = None,
    replicates: int = 10,
    seed: int = 0,
    checkpoints: Checkpoints = "log",
    env_kwargs: Mapping[str, Any] | None = None,
    budgets: Any = None,
    block: int = 10,
) -> tuple[Suite, TaskPlan]:
    """Return a suite of one task and its plan, for a comparison without a suite file.

    The arguments are those of `evaluate`; an agent may also be an `AgentSpec`. `block` is the
    number of replicates that run together.
    """
    if not isinstance(env_kwargs, (Mapping, type(None))):
        raise ParameterError(f"env_kwargs must be a mapping or None, got {shown(env_kwargs)}")
    known = environment(env_id)
    kwargs = dict(env_kwargs or {})
    # a later change of an array does not change what was run
    kwargs |= {k: v.copy() for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    if "horizon" in kwargs and horizon is not None:
        raise ParameterError("give the horizon once: as horizon= or in env_kwargs")
    horizon = kwargs.pop("horizon", known.parameters["horizon"]) if horizon is None else horizon
    horizon = validation.integer("horizon", horizon, 2)
    if not isinstance(checkpoints, (str, int)):
        checkpoints = resolve_checkpoints(checkpoints, horizon)
    seed = check_seed(seed)
    try:
        task = Task(
            name=known.short,
            env=known.id,
            env_kwargs=kwargs,
            horizon=horizon,
            description=known.summary,
        )
        suite = Suite(
            name=AD_HOC,
            title=known.id,
            seed=seed,
            tuning_seed=seed + SEED_SPAN,
            normalisation_seed=seed + 2 * SEED_SPAN,
            replicates=replicates,
            block=block,
            checkpoints=checkpoints,
            tasks=(task,),
        )
    except ValidationError as error:
        raise raised(error) from None
    problem = known.make_problem(**kwargs, horizon=horizon)
    listed = budgets if isinstance(budgets, (list, tuple)) else [budgets]
    grid = None if budgets is None else list(dict.fromkeys(Budget.parse(b) for b in listed))
    runs: list[AgentRun] = []
    for label, spec, own in _chosen(agents, known.kind):
        each = [Budget.parse(own)]
        if own is None and grid is not None and spec.protects is not None:
            # Agents that need a budget have no run without one.
            each = [b for b in grid if b is not None or spec.budget != "required"] or [None]
        try:
            runs += [AgentRun(spec=spec, label=label, budget=b) for b in each]
        except ValidationError as error:
            raise raised(error) from None
    return suite, TaskPlan(task, runs, problem=problem)


def _chosen(agents: Any, kind: str) -> Iterator[tuple[str, AgentSpec, Any]]:
    """Yield label, spec and given budget of every agent of `evaluate`."""
    if isinstance(agents, Mapping):
        named = list(agents.items())
    else:
        several = isinstance(agents, Sequence) and not isinstance(agents, str)
        named = [(None, value) for value in (agents if several else [agents])]
    if not named:
        raise ParameterError("agents must name at least one agent, got none")
    for label, value in named:
        if not isinstance(label, (str, type(None))):
            raise ParameterError(f"an agent's label must be printable text, got {shown(label)}")
        given = value if isinstance(value, tuple) and 1 <= len(value) <= 3 else (value,)
        agent, budget, params = (*given, None, None)[:3]
        if not isinstance(params, (Mapping, type(None))) or not all(
            isinstance(key, str) for key in params or ()
        ):
            raise ParameterError(f"agent parameters must map names to values, got {shown(params)}")
        spec = spec_of(agent, kind, label)
        spec = spec.over(params) if params else spec
        yield spec.name if label is None else label, spec, budget
