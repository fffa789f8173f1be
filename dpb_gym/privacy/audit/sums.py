"""Audits of sums: the pair of records that attains the sensitivity, the exact likelihood ratio.

One record differs between the two worlds, the first one; the records of all other rounds are
frozen, and since they only shift what is released, they are zero. The noise of a sum is normal
with a known covariance, so the exact log-likelihood ratio is linear in the releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import ParameterError
from dpb_gym.privacy import toeplitz
from dpb_gym.privacy.audit.engine import EXACT, audit_outputs, audit_scores
from dpb_gym.privacy.audit.report import AuditReport
from dpb_gym.privacy.checks import FloatArray, count
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.base import Releaser
from dpb_gym.privacy.releasers.continual import ContinualSum
from dpb_gym.privacy.releasers.gaussian import GaussianSum

MakeReleaser = Callable[[int, NoiseSource, Ledger], Releaser]


def audit_sum(
    make: MakeReleaser,
    first: ArrayLike,
    second: ArrayLike,
    *,
    direction: ArrayLike | None = None,
    rounds: int = 1,
    sample: float = 1.0,
    claimed: Guarantee | None = None,
    ledger: Callable[[], Ledger] = Ledger,
    runs: int = 2000,
    seed: int = 0,
    confidence: float = 0.95,
    subject: str = "sum",
) -> AuditReport:
    """Audits a releaser of sums on a pair of records, with 2 x `runs` replicates of it.

    Args:
        make: ``make(replicates, noise, ledger)`` makes the releaser, all runs of one world at
            once.
        first: Record of the first round in the first world: vector, matrix, or a number with
            `direction`.
        second: The same in the second world.
        direction: Public vector that the number multiplies (see `Segment`).
        rounds: Rounds; the sum is released after each of them.
        sample: Probability with which the record enters at all; below 1 the caller's Poisson
            sample is part of the audited mechanism.
        claimed: What is claimed; by default what the releaser charged to its ledger.
        ledger: Makes the ledger, e.g. to set notion and unit.
        runs: Runs in each world.
        seed: Seed of noise and sampling.
        confidence: Joint confidence of all bounds.
        subject: What is audited, in words.

    Example:
        >>> from dpb_gym.privacy import GaussianSum
        >>> report = audit_sum(
        ...     lambda n, noise, ledger: GaussianSum(
        ...         2, n, clip=1.0, rho=0.5, noise=noise, ledger=ledger
        ...     ),
        ...     [1.0, 0.0],
        ...     [-1.0, 0.0],
        ... )
        >>> report.verdict
        'PASS'
    """
    runs, rounds = count("runs", runs), count("rounds", rounds)
    zero, one = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if zero.shape != one.shape:
        raise ParameterError(f"records have shapes {zero.shape} and {one.shape}")
    axis = one - zero
    if direction is not None:
        axis = float(axis) * np.asarray(direction, dtype=np.float64)
    length = float(np.sqrt((axis**2).sum()))
    if not length > 0:
        raise ParameterError("the two records are equal: nothing to tell apart")
    streams = np.random.SeedSequence(seed).spawn(4)
    worlds, guarantee = [], claimed
    for record, noise_seed, sample_seed in zip((zero, one), streams[:2], streams[2:]):
        noise = NoiseSource(
            [np.random.Generator(np.random.PCG64DXSM(s)) for s in noise_seed.spawn(runs)]
        )
        book = ledger()
        releaser = make(runs, noise, book)
        drawn = np.random.default_rng(sample_seed).random(runs) < sample
        worlds.append(_releases(releaser, record, direction, drawn, rounds, axis / length))
        if claimed is None:
            guarantee = book.guarantee
    weights = optimal_weights(releaser, rounds)
    details = {"sensitivity": f"{length:.6g} between the two records"}
    common: dict[str, Any] = {
        "subject": subject,
        "confidence": confidence,
        "details": details,
    }
    if weights is None:
        return audit_outputs(worlds[0], worlds[1], guarantee, **common)
    scores = [world @ weights for world in worlds]
    return audit_scores(scores[0], scores[1], guarantee, score=EXACT, **common)


def _releases(
    releaser: Releaser,
    record: FloatArray,
    direction: ArrayLike | None,
    drawn: NDArray[np.bool_],
    rounds: int,
    axis: FloatArray,
) -> FloatArray:
    """Releases ``(runs, rounds)`` along the unit `axis` in which the two worlds differ."""
    runs = drawn.size
    present = drawn.reshape((runs,) + (1,) * record.ndim)
    out = np.empty((runs, rounds))
    for t in range(rounds):
        if direction is None:
            releaser.add(
                np.where(present, record, 0.0) if t == 0 else np.zeros((runs, *record.shape))
            )
        else:
            # 0 may lie outside the segment of values; along no direction any value adds nothing
            here = np.where(drawn[:, None], direction, 0.0)
            releaser.add(np.full(runs, float(record)), here if t == 0 else 0.0 * here)
        released = releaser.release()
        out[:, t] = (released.reshape(runs, -1) * axis.ravel()).sum(axis=1)
    return out


def optimal_weights(releaser: Releaser, rounds: int) -> FloatArray | None:
    """Weights ``(rounds,)`` that turn releases into the log-likelihood ratio, up to scale.

    For a record that enters in the first round. `None` if the noise of `releaser` is not
    known to this function.
    """
    mapped = noise_map(releaser, rounds)
    if mapped is None:
        return None
    matrix, signal = mapped
    return np.asarray(np.linalg.solve(matrix @ matrix.T, signal), dtype=np.float64)


def noise_map(releaser: Releaser, rounds: int) -> tuple[FloatArray, FloatArray] | None:
    """How independent normals make the noise of releases 1..rounds, and where a first record
    shows: matrix ``(rounds, normals)`` and signal ``(rounds,)``."""
    if isinstance(releaser, GaussianSum):
        if releaser.cumulative:
            return np.tri(rounds), np.ones(rounds)
        return np.eye(rounds), np.eye(rounds)[0]
    if not isinstance(releaser, ContinualSum) or releaser.every != 1:
        return None
    if releaser.mechanism == "binary-tree":
        return tree_map(rounds), np.ones(rounds)
    if releaser.mechanism == "sqrt-toeplitz":
        column = toeplitz.square_root_coefficients(releaser.steps)
    elif releaser.mechanism == "blt":
        theta, omega = toeplitz.blt_parameters(releaser.steps)
        column = toeplitz.blt_noise_coefficients(
            np.array(theta, np.float64), np.array(omega, np.float64), releaser.steps
        )
    else:
        return None
    lag = np.subtract.outer(np.arange(rounds), np.arange(rounds))
    return np.where(lag >= 0, column[np.abs(lag)], 0.0), np.ones(rounds)


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


def attained(releaser: Releaser, rounds: int, distance: float, sigma: float) -> float:
    """mu that an attacker reaches on a first record moved by `distance` (0 if not known)."""
    mapped = noise_map(releaser, rounds)
    if mapped is None:
        return 0.0
    matrix, signal = mapped
    return float(distance / sigma * np.sqrt(signal @ np.linalg.solve(matrix @ matrix.T, signal)))
