"""Audits of sums: the pair of records that attains the sensitivity, the exact likelihood ratio.

One record differs between the two worlds, the first one; the records of all other rounds are
frozen, and since they only shift what is released, they are zero. The noise of a sum is normal
with a known covariance, so the exact log-likelihood ratio is linear in the releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import toeplitz
from dpb_gym.privacy.audit.engine import EXACT, audit_outputs, audit_scores
from dpb_gym.privacy.audit.report import AuditReport
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.sums import BatchSum, RunningSum, Sum
from dpb_gym.validation import FloatArray

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
    confidence: float = 0.95,
    subject: str = "sum",
) -> AuditReport:
    """Audits a releaser of sums on a pair of records, with 2 x `runs` replicates of it.

    Args:
        make: Makes the releaser with a curator, all runs of one world at once.
        first: Record of the first round in the first world: vector, matrix, or a number with
            `direction`.
        second: The same in the second world.
        budget: Of the curator.
        protects: The same.
        direction: Public vector that the number multiplies (see `Segment`).
        rounds: Rounds; the sum is released after each of them.
        noise: ``"seeded"`` or ``"system"``.
        claimed: What is claimed; by default what the releaser charged to its curator.
        runs: Runs in each world.
        seed: Seed of the noise.
        confidence: Joint confidence of all bounds.
        subject: What is audited, in words.

    Example:
        >>> report = audit_sum(lambda c: c.batch_sum(2, clip=1.0), [1.0, 0.0], [-1.0, 0.0])
        >>> report.verdict
        'PASS'
    """
    runs, rounds = validation.integer("runs", runs, 1), validation.integer("rounds", rounds, 1)
    zero, one = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if zero.shape != one.shape:
        raise ParameterError(f"records have shapes {zero.shape} and {one.shape}")
    axis = one - zero
    if direction is not None:
        axis = float(axis) * np.asarray(direction, dtype=np.float64)
    length = float(np.sqrt((axis**2).sum()))
    if not length > 0:
        raise ParameterError("the two records are equal: nothing to tell apart")
    worlds = []
    for world, record in enumerate((zero, one)):
        source = "system" if noise == "system" else NoiseSource.from_seed([seed, world], runs)
        curator = Curator(budget, protects, noise=source, replicates=runs, horizon=rounds)
        releaser = make(curator)
        worlds.append(_releases(releaser, record, direction, rounds, axis / length))
    common: dict[str, Any] = {
        "subject": subject,
        "confidence": confidence,
        "details": {"sensitivity": f"{length:.6g} between the two records"},
    }
    claim = curator.guarantee if claimed is None else claimed
    weights = optimal_weights(releaser, rounds)
    if weights is None:
        return audit_outputs(worlds[0], worlds[1], claim, **common)
    scores = [world @ weights for world in worlds]
    return audit_scores(scores[0], scores[1], claim, score=EXACT, **common)


def _releases(
    releaser: Sum, record: FloatArray, direction: ArrayLike | None, rounds: int, axis: FloatArray
) -> FloatArray:
    """Releases ``(runs, rounds)`` along the unit `axis` in which the two worlds differ."""
    runs = releaser.replicates
    out = np.empty((runs, rounds))
    for t in range(rounds):
        here = float(t == 0)
        if direction is None:
            releaser.add(np.broadcast_to(here * record, (runs, *record.shape)))
        else:
            along = here * np.asarray(direction, dtype=np.float64)
            releaser.add(np.full(runs, float(record)), np.broadcast_to(along, (runs, along.size)))
        if isinstance(releaser, BatchSum):
            releaser.release()
        assert isinstance(releaser, (BatchSum, RunningSum))
        released = releaser.value
        out[:, t] = (released.reshape(runs, -1) * axis.ravel()).sum(axis=1)
    return out


def optimal_weights(releaser: Sum, rounds: int) -> FloatArray | None:
    """Weights ``(rounds,)`` that turn releases into the log-likelihood ratio, up to scale.

    For a record that enters in the first round. `None` if the noise of `releaser` is not
    known to this function.
    """
    if isinstance(releaser, BatchSum) and releaser.sampling == 1:
        matrix = np.tri(rounds) if releaser.cumulative else np.eye(rounds)
        signal = np.ones(rounds) if releaser.cumulative else np.eye(rounds)[0]
    elif isinstance(releaser, RunningSum) and releaser.every == 1:
        matrix, signal = noise_matrix(releaser, rounds), np.ones(rounds)
    else:
        return None
    return np.asarray(np.linalg.solve(matrix @ matrix.T, signal), dtype=np.float64)


def noise_matrix(releaser: RunningSum, steps: int) -> FloatArray:
    """How independent normals make the noise of the first `steps` releases."""
    if releaser.mechanism == "binary-tree":
        return tree_map(steps)
    if releaser.mechanism == "sqrt-toeplitz":
        column = toeplitz.square_root_coefficients(releaser.steps)
    else:
        theta, omega = toeplitz.blt_parameters(releaser.steps)
        column = toeplitz.blt_noise_coefficients(
            np.array(theta, np.float64), np.array(omega, np.float64), releaser.steps
        )
    lag = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(lag >= 0, column[np.abs(lag)], 0.0)


def tree_map(rounds: int) -> FloatArray:
    """Which node noises the binary tree's releases 1..rounds consist of."""
    nodes: dict[tuple[int, int], int] = {}
    rows = []
    for t in range(1, rounds + 1):
        row, end = [], t
        while end:
            size = end & -end
            row.append(nodes.setdefault((end - size, end), len(nodes)))
            end -= size
        rows.append(row)
    matrix = np.zeros((rounds, len(nodes)))
    for t, row in enumerate(rows):
        matrix[t, row] = 1.0
    return matrix
