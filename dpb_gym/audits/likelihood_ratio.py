"""Likelihood ratio of everything that a releaser releases.

The attacker knows every record but the target's, both candidates for the target's record, the
distribution of the noise, and all releases. Two exact copies of the releaser get the same records:
one those of the run, the other those with the target exchanged. The difference of their releases
must be hidden by the noise, which is the release minus that of the first copy.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from dpb_gym.privacy.releasers.batch_sum import BatchSum
from dpb_gym.privacy.releasers.minimiser import Minimiser
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.privacy.releasers.running_sum import RunningSum
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.releasers.weighted_sum import WeightedSum
from dpb_gym.validation import FloatArray

MOST_STEPS = 64  # releases of a running sum; later ones add little information


class Tap:
    """Record of one releaser in a batch of runs.

    Args:
        releaser: A releaser without records.
        towards: +1 for runs in the first world, -1 for runs in the second, ``(B,)``.

    Attributes:
        capturing: While True, records belong to the other world and do not reach the releaser.
        releases: Number of releases so far.
    """

    def __init__(self, releaser: Releaser, towards: FloatArray) -> None:
        self.releaser, self.towards = releaser, towards
        self.capturing = False
        self.releases = 0
        self._captured: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._last: Any = None
        self._steps: list[tuple[FloatArray, FloatArray, Any]] = []
        self._minima: list[FloatArray] = []
        self._exact_rows: list[FloatArray] = []
        thing: Any = releaser
        thing.ready()
        self.twin, self.other = _exact(releaser), _exact(releaser)
        # functions instead of methods, because copies of the agent would copy methods
        if hasattr(releaser, "add"):
            self._add = thing.add
            thing.add = lambda *args, **kwargs: self._on_add(*args, **kwargs)
        if hasattr(releaser, "release"):
            self._release = thing.release
            thing.release = lambda *args, **kwargs: self._on_release(*args, **kwargs)

    # ---------------------------------------------------------------- listening

    def _on_add(self, *args: Any, **kwargs: Any) -> None:
        if self.capturing:
            self._captured = copy.deepcopy((args, kwargs))
            return
        there, named = self._captured or (args, kwargs)
        self._captured = None
        self.twin.add(*args, **kwargs)
        self.other.add(*there, **named)
        self._add(*args, **kwargs)
        if isinstance(self.releaser, (RunningSum, WeightedSum)) and self._moved():
            self._keep(self.releaser.value, self.twin.value, self.other.value, 1.0)

    def _moved(self) -> bool:
        if isinstance(self.releaser, WeightedSum):
            return self.releaser.releases > len(self._steps)
        assert isinstance(self.releaser, RunningSum)
        return self.releaser.rounds % self.releaser.every == 0 and len(self._steps) < MOST_STEPS

    def _on_release(self, *args: Any, **kwargs: Any) -> Any:
        if self.capturing:
            return self._nothing() if self._last is None else self._last
        if isinstance(self.releaser, Minimiser) or hasattr(self.releaser, "log_density"):
            self._last = self._release(*args, **kwargs)
            self.releases += 1
            known = isinstance(self.releaser, Minimiser)
            (self._at_minimum if known else self._of_density)(*args, **kwargs)
            return self._last
        exact, swapped = self.twin.release(*args, **kwargs), self.other.release(*args, **kwargs)
        self._last = self._release(*args, **kwargs)
        norm = kwargs.get("norm", args[2] if len(args) > 2 else None)
        due = args[0] if args and np.asarray(args[0]).dtype == bool else None
        size = np.ones(len(self.towards)) if norm is None else np.asarray(norm)
        if due is not None:  # replicates that are not due released before
            size = np.where(due, size, np.inf)
        self._keep(self._last, exact, swapped, size)
        return self._last

    def _nothing(self) -> FloatArray:
        releaser: Any = self.releaser
        shape = (releaser.dim,) if hasattr(releaser, "dim") else releaser.shape.shape
        return np.zeros((len(self.towards), *shape))

    def _keep(
        self, released: FloatArray, exact: FloatArray, swapped: FloatArray, size: Any
    ) -> None:
        self.releases += 1
        self._steps.append((self._rows(released - exact), self._rows(swapped - exact), size))
        if isinstance(self.releaser, BatchSum) and self.releaser.sampling < 1:
            self._exact_rows.append(self._rows(exact))

    def _rows(self, values: FloatArray) -> FloatArray:
        """Return isometric rows: off-diagonal entries of symmetric matrices count twice."""
        if values.ndim == 2:
            return values
        d = values.shape[1]
        upper = np.triu_indices(d)
        return values[:, upper[0], upper[1]] * np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))

    def _at_minimum(self, due: Any = None) -> None:
        """Record the log-density ratio of a minimiser, theta -> -(gradient + ridge (theta - m))."""
        assert isinstance(self.releaser, Minimiser)
        plan, theta = self.releaser.plan, self.releaser.value
        if plan is None:
            return
        linear, density = [], []
        for twin in (self.twin, self.other):
            gradient, hessian = twin.derivatives(theta)
            linear.append((gradient + plan.ridge * (theta - self.releaser.centre)) / plan.sigma)
            bent = np.linalg.slogdet(hessian + plan.ridge * np.eye(plan.dim))[1]
            density.append(bent - 0.5 * (linear[-1] ** 2).sum(axis=1))
        asked = np.ones(len(self.towards), bool) if due is None else np.asarray(due)
        gap = ((linear[1] - linear[0]) ** 2).sum(axis=1)
        self._minima.append(np.where(asked, [density[1] - density[0], gap], 0.0))

    def _of_density(self, *args: Any, **kwargs: Any) -> None:
        """Record the log-density ratio of a releaser that computes it itself."""
        releaser: Any = self.releaser
        here, there = (twin.log_density(releaser.kept) for twin in (self.twin, self.other))
        for twin in (self.twin, self.other):
            twin.release(*args, **kwargs)
        # for normal noise mu^2 is twice the divergence, whose mean is not negative
        self._minima.append(
            np.stack([there - here, np.full_like(here, 2.0 * (here - there).mean())])
        )

    # ---------------------------------------------------------------- the score

    def law(self) -> tuple[FloatArray, float]:
        """Return the log-likelihood ratio of all releases, and its mu.

        Returns:
            The log-likelihood ratio of the second world against the first, ``(B,)``; and mu, the
            effect of the exchange in units of the charged noise.
        """
        if self._minima:
            against, squares = np.sum(self._minima, axis=0)
            return self.towards * against, math.sqrt(max(0.0, float(squares.mean())))
        if not self._steps:
            return np.zeros(len(self.towards)), 0.0
        noise, gap = (np.stack([step[i] for step in self._steps], axis=1) for i in (0, 1))
        if isinstance(self.releaser, BatchSum) and self.releaser.sampling < 1:
            against, mu = self._sampled(noise, gap)
            return self.towards * against, mu
        noise, gap = self._whitened(noise, gap)
        laplace = isinstance(self.releaser, Sum) and self.releaser.law == "laplace"
        if laplace:
            against = math.sqrt(2.0) * (np.abs(noise) - np.abs(noise - gap)).sum(axis=(1, 2))
            # half of all ratios are equal up to rounding, which carries no information
            against = against.round(9)
        with np.errstate(over="ignore"):  # exact releases give an infinite ratio
            squares = (gap * gap).sum(axis=(1, 2))
            if not laplace:
                against = (noise * gap).sum(axis=(1, 2)) - 0.5 * squares
            return self.towards * against, float(np.sqrt(squares.mean()))

    def _whitened(self, noise: FloatArray, gap: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return noise and gap ``(B, steps, width)`` in units of independent noise."""
        releaser: Any = self.releaser
        sigma = max(float(releaser.sigma), 1e-300)
        if isinstance(releaser, RunningSum):
            matrix = releaser.noise_matrix(noise.shape[1])
            whiten = np.linalg.inv(np.linalg.cholesky(matrix @ matrix.T)) / sigma
            noise, gap = (np.einsum("st,btw->bsw", whiten, part) for part in (noise, gap))
        elif isinstance(releaser, WeightedSum):
            scale = releaser.schedule.scales[: noise.shape[1], None] / sigma
            noise, gap = noise * scale, gap * scale
        else:
            if isinstance(releaser, BatchSum) and releaser.cumulative:
                noise, gap = (np.diff(part, axis=1, prepend=0.0) for part in (noise, gap))
            size = np.stack([np.broadcast_to(s[2], len(self.towards)) for s in self._steps], axis=1)
            scale = 1.0 / (sigma * size[:, :, None])
            noise, gap = noise * scale, gap * scale
        return noise, gap

    def _sampled(self, noise: FloatArray, gap: FloatArray) -> tuple[FloatArray, float]:
        """Return ratio and mu of a record sampled by a secret bit, others zero: normal mixtures."""
        assert isinstance(self.releaser, BatchSum)
        q, sigma = self.releaser.sampling, self.releaser.sigma
        exact = np.stack(self._exact_rows, axis=1)
        if self.releaser.cumulative:
            noise, gap, exact = (np.diff(part, axis=1, prepend=0.0) for part in (noise, gap, exact))
        seen, there = q * (noise + exact), exact + gap
        logs = []
        for mean in (exact, there):
            ratio = ((seen * mean).sum(axis=2) - 0.5 * (mean * mean).sum(axis=2)) / sigma**2
            logs.append(np.logaddexp(math.log1p(-q), math.log(q) + ratio).sum(axis=1))
        if np.minimum(np.abs(exact).max(axis=2), np.abs(there).max(axis=2)).max() > 1e-9:
            mu = 0.0  # other records are not zero: the mixture has more than two components
        else:
            mu = q * math.sqrt(float((gap * gap).sum(axis=(1, 2)).mean())) / sigma
        return logs[1] - logs[0], mu


def noise_of(releaser: Any) -> dict[int, Any]:
    """Return a memo with which `copy.deepcopy` shares a releaser's curator and random numbers."""
    names = ("_noise", "_mechanism", "_bits", "_draws", "_normals")
    parts = [releaser.curator, *(getattr(releaser, name, None) for name in names)]
    return {id(part): part for part in parts}


def _exact(releaser: Any) -> Any:
    """Return a copy of the releaser without noise, with its own records."""
    twin = copy.deepcopy(releaser, noise_of(releaser))
    twin._sigma = twin._scale = 0.0
    if isinstance(twin, BatchSum):
        twin.sampling, twin._bits = 1.0, None
    return twin


def can_tap(releaser: Releaser) -> bool:
    """Return whether the distribution of a releaser's output is known.

    It is known for the library's releasers, and for others that define `log_density` of their
    newest release given the records of a copy.
    """
    return isinstance(releaser, (Sum, Minimiser)) or hasattr(releaser, "log_density")
