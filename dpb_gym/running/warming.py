"""Compilation of all kernels that agents need, before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from types import SimpleNamespace
from typing import Any

from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import DPBError
from dpb_gym.kernel_cache import compilations
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, agent_specs, shortcoming
from dpb_gym.running.api import evaluate
from dpb_gym.running.execution import check_backend, in_processes
from dpb_gym.running.progress import Report, Show, board
from dpb_gym.serving import warm_up

HORIZON = 330
"""Rounds of each play: past the first releases, which are after at most 300 rounds."""
SLATES = {"n_items": 12, "capacity": 3, "dim": 3}
USERS = {"interactions_per_user": 2}
# Together they need every kernel that a run of a suite or a session needs.
ENVIRONMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("DPB/Assortment-v0", SLATES | {"context_norm": "clip"}),
    ("DPB/Assortment-v0", SLATES | {"revenues": "random"}),
    ("DPB/Assortment-v0", SLATES | {"available": 0.8}),
    ("DPB/Pricing-v0", {"dim": 3}),
    ("DPB/Pricing-v0", {"demand": "gaussian"}),
    ("DPB/Recommendation-v0", {"dim": 5, "n_arms": 20, **USERS}),
    ("DPB/Recommendation-v0", {"dim": 4, "fresh": True, **USERS}),
    ("DPB/MultiArmed-v0", {"n_arms": 5, **USERS}),
)
WITHOUT_KERNELS = (".reference", ".deep_agents")
"""Parts of the entry points of agents that are not compiled: NumPy's and Stable-Baselines3's."""
REPLAY = "DPB/MovieLensReplay-v0"
BUDGET = Budget.zcdp(50.0)
SESSION_BUDGET = Budget.approx(20.0, 1e-5)


def warm(
    names: Sequence[str] | None = None, *, workers: int | None = None, show: Show = None
) -> int:
    """Compile the kernels of agents and of their environments, and store them in the cache.

    Args:
        names: Registered agents; by default all that have kernels, see `WITHOUT_KERNELS`.
        workers: Processes; the number of usable cores by default.
        show: Progress; see `dpb_gym.running.progress.board`.

    Returns:
        The number of kernels that were compiled; 0 if all of them were in the cache.

    Raises:
        UnknownNameError: If there is no such agent.
        WorkerError: If a worker dies.
    """
    everybody = [
        name
        for name, spec in agent_specs().items()
        if not any(part in spec.entry_point for part in WITHOUT_KERNELS)
    ]
    chosen = [agent_spec(name).name for name in names or everybody]
    workers = check_backend(workers)
    compiled = 0
    jobs = [SimpleNamespace(title=name, rounds=HORIZON) for name in chosen]
    with board(jobs, show) as watched:
        beats = [None if watched is None else watched.heartbeat(i) for i in range(len(chosen))]
        calls = list(zip(range(len(chosen)), chosen, beats))
        here = workers == 1 or len(calls) == 1
        done = (
            starmap(compile_agent, calls) if here else in_processes(compile_agent, calls, workers)
        )
        for index, count in done:
            compiled += count
            if watched is not None:
                watched.finish(index)
    return compiled


def compile_agent(index: int, name: str, heartbeat: Report | None) -> tuple[int, int]:
    """Play small environments with an agent, in batches and as a session.

    Return the number of the job and the number of kernels compiled.
    """
    spec = agent_spec(name)
    budgets = {"never": (None,), "optional": (None, BUDGET), "required": (BUDGET,)}[spec.budget]
    with compilations(partial(heartbeat, 0) if heartbeat is not None else None) as compiled:
        make_problem(REPLAY, dim=8).instance([0])
        for env_id, kwargs in ENVIRONMENTS:
            info = make_problem(env_id, horizon=HORIZON, **kwargs).info
            for budget in budgets if not shortcoming(spec, info) else ():
                # one replicate is drawn ahead in other arrays than several
                for replicates in (1, 2) if budget is budgets[0] else (2,):
                    with suppress(DPBError):  # of agents that need more of an environment
                        evaluate(
                            env_id, [(name, budget)], HORIZON, replicates,
                            env_kwargs=kwargs, progress=False,
                        )  # fmt: skip
                if not spec.uses_oracle:
                    warm_up(spec, info, budget and SESSION_BUDGET, "seeded")
    return index, compiled.count
