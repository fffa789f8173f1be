"""Audits of releasers and calibrations, each on records that attain the sensitivity.

For sums, only the first record differs between the two worlds. All other records are zero, since
fixed records only shift the releases. The score is the exact log-likelihood ratio of all releases,
see `Tap`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.audits.audit_report import AuditReport
from dpb_gym.audits.distinguisher import audit_scores
from dpb_gym.audits.likelihood_ratio import Tap
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.release_times import OnRequest
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.sums import Sum

MakeSum = Callable[[Curator], Sum]


def audit_sum(
    make: MakeSum,
    first: ArrayLike,
    second: ArrayLike,
    budget: Budget | str = "rho=0.5",
    *,
    protects: tuple[str, str] = ("joint", "user-round"),
    direction: ArrayLike | None = None,
    rounds: int = 1,
    noise: str = "seeded",
    claimed: Guarantee | None = None,
    runs: int = 2000,
    seed: int = 0,
    **said: Any,
) -> AuditReport:
    """Audit a releaser of sums on a pair of records, with 2 x `runs` replicates of it.

    Args:
        make: Function that makes the releaser of all runs of one world with a curator.
        first: Record of the first round in the first world: vector, matrix, or a number with
            `direction`.
        second: The same in the second world.
        budget: Budget of the curator.
        protects: Notion and unit of the curator.
        direction: Public vector that the number multiplies (see `Segment`).
        rounds: Rounds; the sum is released after each of them.
        noise: ``"seeded"`` or ``"system"``.
        claimed: The claim; by default the cost charged to the curator.
        runs: Runs in each world.
        seed: Seed of the noise.
        **said: See `audit_scores`: `subject`, `confidence`.

    Example:
        >>> report = audit_sum(lambda c: c.batch_sum(2, clip=1.0), [1.0, 0.0], [-1.0, 0.0])
        >>> report.verdict
        'PASS'
    """
    runs = validation.integer("runs", runs, 1)
    rounds = validation.integer("rounds", rounds, 1)
    zero = np.asarray(first, dtype=np.float64)
    one = np.asarray(second, dtype=np.float64)
    if zero.shape != one.shape:
        raise ParameterError(f"records have shapes {zero.shape} and {one.shape}")
    axis = one - zero
    if direction is not None:
        axis = float(axis) * np.asarray(direction, dtype=np.float64)
    length = float(np.sqrt((axis**2).sum()))
    if not length > 0:
        raise ParameterError("the two records are equal: nothing to tell apart")
    if noise == "system":
        source: NoiseSource | str = noise
    else:
        halves = (NoiseSource.from_seed([seed, world], runs).generators for world in (0, 1))
        source = NoiseSource([*itertools.chain(*halves)])
    curator = Curator(budget, protects, noise=source, replicates=2 * runs, horizon=rounds)
    releaser = behind(make(curator))
    tap = Tap(releaser, np.repeat([1.0, -1.0], runs))
    for t in range(rounds):
        for tap.capturing, worlds in ((True, (one, zero)), (False, (zero, one))):
            rows = np.repeat(np.stack(worlds), runs, axis=0)
            if direction is None:
                releaser.add(rows * (t == 0))
            else:
                along = np.asarray(direction, dtype=np.float64) * (t == 0)
                releaser.add(rows, np.broadcast_to(along, (2 * runs, along.size)))
        tap.settle()
        if isinstance(releaser.times, OnRequest):
            releaser.release()
    scores, _ = tap.law()
    said = {"subject": "sum", **said}
    said["details"] = {"sensitivity": f"{length:.6g} between the two records"}
    claim = curator.guarantee if claimed is None else claimed
    return audit_scores(scores[:runs], scores[runs:], claim, **said)
