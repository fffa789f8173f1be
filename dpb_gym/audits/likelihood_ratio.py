"""Likelihood ratio of everything that a releaser releases.

The attacker knows every record but the target's, both candidates for the target's record, the
distribution of the noise, and all releases. Two exact copies of the releaser get the same records:
one those of the run, the other those with the target exchanged. The difference of their releases
must be hidden by the noise, which is the release minus that of the first copy.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, TypeGuard

import numpy as np

from dpb_gym.audits.residuals import normal_scores
from dpb_gym.privacy.releasers.correlated_noise import make_mechanism
from dpb_gym.privacy.releasers.minimiser import Minimiser
from dpb_gym.privacy.releasers.release_times import Every, OnRequest, Planned
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.validation import FloatArray

MOST_STEPS = 128  # releases of a running sum: the first half of them, and some at random


class Tap:
    """Record of one releaser in a batch of runs.

    Args:
        releaser: A releaser without records.
        towards: +1 for runs in the first world, -1 for runs in the second, ``(B,)``.
        exchanged: Whether the releases of the other world are computed, for `law`. Without them
            the tap has residuals only.

    Attributes:
        capturing: While True, records belong to the other world and do not reach the releaser.
            All of them are exchanged for those of the run, in their order, until `settle`.
        releases: Number of releases so far.
        uneven: Whether the two worlds had different numbers of records in a round, or released
            after different numbers of them.
    """

    def __init__(self, releaser: Releaser, towards: FloatArray, *, exchanged: bool = True) -> None:
        self.releaser, self.towards = releaser, towards
        self.capturing = False
        self.releases = 0
        self._captured: list[tuple[tuple[Any, ...], dict[str, Any]] | None] | None = None
        self.uneven = False
        self._last: Any = None
        self._steps: list[tuple[FloatArray, FloatArray, Any]] = []
        self._minima: list[FloatArray] = []
        self._at_minima: list[FloatArray] = []
        self._before: Any = None
        self._times: list[int] = []
        if _released(releaser, Every):
            early = min(releaser.steps, MOST_STEPS // 2)
            later = np.random.default_rng(releaser.steps).permutation(releaser.steps - early)
            self._chosen = {*range(1, early + 1), *(1 + early + later[:early]).tolist()}
        self._exact_rows: list[FloatArray] = []
        thing: Any = releaser
        thing.ready()
        self._scales = np.zeros(0)
        if _released(releaser, Planned):
            self._scales = _charged_scales(releaser)
        self._exchanged = exchanged
        self.twin = _exact(releaser)
        self.other = _exact(releaser) if exchanged else self.twin
        # functions instead of methods, because copies of the agent would copy methods
        if hasattr(releaser, "add"):
            self._add = thing.add
            thing.add = lambda *args, **kwargs: self._on_add(*args, **kwargs)
        if hasattr(releaser, "add_rounds"):
            thing.add_rounds = lambda *args, **named: self._on_add_rounds(args, named)
        if hasattr(releaser, "release"):
            self._release = thing.release
            thing.release = lambda *args, **kwargs: self._on_release(*args, **kwargs)
        if hasattr(releaser, "forget"):
            self._forget = thing.forget
            thing.forget = lambda: self._on_forget()

    # ---------------------------------------------------------------- listening

    def settle(self) -> None:
        """End a round in which the other world had records of its own."""
        self.uneven |= bool(self._captured)
        self._captured = None

    def _on_add_rounds(self, columns: tuple[Any, ...], named: dict[str, Any]) -> None:
        for i in range(len(next(iter((*columns, *named.values()))))):
            parts = [None if column is None else column[i] for column in columns]
            self._on_add(*parts, **{k: None if v is None else v[i] for k, v in named.items()})

    def _on_add(self, *args: Any, **kwargs: Any) -> None:
        if self.capturing:
            self._captured = [*(self._captured or []), copy.deepcopy((args, kwargs))]
            return
        before = getattr(self.releaser, "sent", None)
        self._add(*args, **kwargs)
        self.twin.add(*args, **kwargs)
        if self._exchanged and self._captured is None:
            self.other.add(*args, **kwargs)
        elif self._exchanged:
            there, named = self._next_exchanged(args, kwargs)
            self.other.add(*there, **named)
        if _is_local(self.releaser):
            if self.releaser.sent is not before:
                self._ratio(self.releaser.sent)
        elif _released(self.releaser, Every, Planned) and self._moved():
            self._keep(self.releaser.value, self.twin.value, self.other.value, 1.0)

    def _next_exchanged(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the next record of the other world, or this one if there is none."""
        assert self._captured is not None
        while self._captured and self._captured[0] is None:
            self.uneven = True
            self._captured.pop(0)
        if self._captured and (there := self._captured.pop(0)) is not None:
            return there
        self.uneven = True
        return args, kwargs

    def _moved(self) -> bool:
        if _released(self.releaser, Planned):
            return self.releaser.releases > len(self._steps)
        assert _released(self.releaser, Every)
        step, rest = divmod(self.releaser.rounds, self.releaser.every)
        if rest or step not in self._chosen:
            return False
        self._times.append(step)
        return True

    def _on_release(self, *args: Any, **kwargs: Any) -> Any:
        if self.capturing:
            self._captured = [*(self._captured or []), None]
            return self._nothing() if self._last is None else self._last
        self._close()
        if isinstance(self.releaser, Minimiser) or hasattr(self.releaser, "log_density"):
            self._last = self._release(*args, **kwargs)
            self.releases += 1
            known = isinstance(self.releaser, Minimiser)
            (self._at_minimum if known else self._of_density)(*args, **kwargs)
            return self._last
        exact = self.twin.release(*args, **kwargs)
        swapped = self.other.release(*args, **kwargs) if self._exchanged else exact
        self._last = self._release(*args, **kwargs)
        norm = kwargs.get("norm", args[2] if len(args) > 2 else None)
        due = args[0] if args and np.asarray(args[0]).dtype == bool else None
        size = np.ones(len(self.towards)) if norm is None else np.asarray(norm)
        if due is not None:  # replicates that are not due released before
            size = np.where(due, size, np.inf)
        self._keep(self._last, exact, swapped, size)
        return self._last

    def _on_forget(self) -> Any:
        if self.capturing:
            self._captured = [*(self._captured or []), None]
            return self._nothing() if self._last is None else self._last
        self._close()
        exact = self.twin.forget()
        swapped = self.other.forget() if self._exchanged else exact
        self._last = self._forget()
        self._before = tuple(self._rows(part) for part in (self._last, exact, swapped))
        return self._last

    def _close(self) -> None:
        """Check that the other world releases after as many records of the round."""
        if self._captured is None:
            return
        if self._captured and self._captured[0] is None:
            self._captured.pop(0)
        else:
            self.uneven = True

    def _nothing(self) -> FloatArray:
        releaser: Any = self.releaser
        shape = (releaser.dim,) if hasattr(releaser, "dim") else releaser.shape.shape
        return np.zeros((len(self.towards), *shape))

    def _keep(
        self, released: FloatArray, exact: FloatArray, swapped: FloatArray, size: Any
    ) -> None:
        self.releases += 1
        now = tuple(self._rows(part) for part in (released, exact, swapped))
        step = now
        if _released(self.releaser, OnRequest) and self.releaser.cumulative:
            step = now if self._before is None else tuple(a - b for a, b in zip(now, self._before))
            self._before = now
        self._steps.append((step[0] - step[1], step[2] - step[1], size))
        if _released(self.releaser, OnRequest) and self.releaser.sampling < 1:
            self._exact_rows.append(step[1])

    def _rows(self, values: FloatArray) -> FloatArray:
        """Return isometric rows: off-diagonal entries of symmetric matrices count twice."""
        if values.ndim == 2:
            return values
        rows, columns, weights = _upper_triangle(values.shape[1])
        return values[:, rows, columns] * weights

    def _at_minimum(self, due: Any = None) -> None:
        """Record the log-density ratio of a minimiser, theta -> -(gradient + ridge (theta - m))."""
        assert isinstance(self.releaser, Minimiser)
        plan = self.releaser.plan
        theta = self.releaser.value
        if plan is None:
            return
        linear = []
        density = []
        for twin in self._twins():
            gradient, hessian = twin.derivatives(theta)
            linear.append((gradient + plan.ridge * (theta - self.releaser.centre)) / plan.sigma)
            bent = np.linalg.slogdet(hessian + plan.ridge * np.eye(plan.dim))[1]
            density.append(bent - 0.5 * (linear[-1] ** 2).sum(axis=1))
            if twin is self.twin and self.releaser.rho:
                self._charged_noise(gradient, hessian, theta, due)
        if not self._exchanged:
            return
        asked = np.ones(len(self.towards), bool) if due is None else np.asarray(due)
        gap = ((linear[1] - linear[0]) ** 2).sum(axis=1)
        self._minima.append(np.where(asked, [density[1] - density[0], gap], 0.0))

    def _charged_noise(
        self, gradient: FloatArray, hessian: FloatArray, theta: FloatArray, due: Any
    ) -> None:
        """Record the linear term that the charged plan would need, in units of its noise."""
        releaser: Any = self.releaser
        plan = releaser._calibrated(releaser.rho)
        noise = (gradient + plan.ridge * (theta - releaser.centre)) / plan.sigma
        # the noise on the output is part of theta
        bend = (hessian + plan.ridge * np.eye(plan.dim)) * (plan.output_std / plan.sigma)
        factor = np.linalg.cholesky(np.eye(plan.dim) + bend @ bend)
        rows = np.linalg.solve(factor, noise[:, :, None])[:, :, 0]
        asked = np.ones(len(rows), bool) if due is None else np.asarray(due)
        longest = np.sort(np.sqrt((theta[asked] ** 2).sum(axis=1)))[-2:]
        if len(longest) == 2 and np.ptp(longest) <= 10.0 * plan.output_std + 1e-9 * longest[1]:
            asked = asked & False  # minima on the edge of a ball do not reveal the linear term
        self._at_minima.append(np.where(asked[:, None], rows, np.nan))

    def _of_density(self, *args: Any, **kwargs: Any) -> None:
        """Record the log-density ratio of a releaser that computes it itself."""
        self._ratio(self.releaser.kept)  # type: ignore[attr-defined]
        for twin in self._twins():
            twin.release(*args, **kwargs)

    def _twins(self) -> tuple[Any, ...]:
        """Return the exact copies, one for each world whose releases are computed."""
        return (self.twin, self.other) if self._exchanged else (self.twin,)

    def _ratio(self, seen: Any) -> None:
        """Record the log-density ratio of what the attacker sees of the newest records."""
        self.releases += _is_local(self.releaser)
        if not self._exchanged:
            return
        here, there = (_log_density(twin, seen) for twin in (self.twin, self.other))
        # for normal noise mu^2 is twice the divergence, whose mean is not negative
        self._minima.append(
            np.stack([there - here, np.full_like(here, 2.0 * (here - there).mean())])
        )

    # ---------------------------------------------------------------- the score

    def law(self) -> tuple[FloatArray, float]:
        """Return the log-likelihood ratio of all releases, and its mu; needs `exchanged`.

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
        if _released(self.releaser, OnRequest) and self.releaser.sampling < 1:
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

    def residuals(self) -> tuple[FloatArray, list[str]]:
        """Return releases minus exact values in units of the charged noise, not of the actual one.

        Returns:
            Residuals ``(B, numbers)``, NaN where nothing was released; no numbers if the noise
            is not additive. Laplace noise is given by its `normal_scores`. The name of each number.
        """
        releaser: Any = self.releaser
        if self._at_minima:
            rows = np.stack(self._at_minima, axis=1)
        elif self._steps and getattr(releaser, "sampling", 1.0) == 1.0 and releaser.rho:
            noise = np.stack([step[0] for step in self._steps], axis=1)
            rows = self._whitened(noise, noise, charged=True)[0]
            sizes = [np.broadcast_to(step[2], len(rows)) for step in self._steps]
            rows[np.isinf(np.stack(sizes, axis=1))] = np.nan
        else:
            rows = np.empty((len(self.towards), 0, 0))
        _, steps, width = rows.shape
        names = [f"release {i + 1} of {releaser.what}" for i in range(steps) for _ in range(width)]
        rows = rows.reshape(len(rows), -1)
        laplace = getattr(releaser, "law", "") == "laplace"
        return normal_scores(rows) if laplace else rows, names

    def _whitened(
        self, noise: FloatArray, gap: FloatArray, charged: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Return noise and gap ``(B, steps, width)`` in units of actual or charged noise."""
        releaser: Any = self.releaser
        sigma = releaser._scales(releaser.rho)[0] if charged else max(releaser.sigma, 1e-300)
        if _released(releaser, Every):
            mechanism = make_mechanism(releaser.mechanism.name, releaser.steps) if charged else None
            matrix = (mechanism.matrix if mechanism else releaser.noise_matrix)(self._times)
            whiten = np.linalg.inv(np.linalg.cholesky(matrix @ matrix.T)) / sigma
            noise, gap = (np.einsum("st,btw->bsw", whiten, part) for part in (noise, gap))
        elif _released(releaser, Planned):
            scales = self._scales if charged else releaser.schedule.scales
            scale = scales[: noise.shape[1], None] / sigma
            noise = noise * scale
            gap = gap * scale
        else:
            size = np.stack([np.broadcast_to(s[2], len(self.towards)) for s in self._steps], axis=1)
            scale = 1.0 / (sigma * size[:, :, None])
            noise = noise * scale
            gap = gap * scale
        return noise, gap

    def _sampled(self, noise: FloatArray, gap: FloatArray) -> tuple[FloatArray, float]:
        """Return ratio and mu of a record sampled by a secret bit, others zero: normal mixtures."""
        assert _released(self.releaser, OnRequest)
        q = self.releaser.sampling
        sigma = self.releaser.sigma
        exact = np.stack(self._exact_rows, axis=1)
        seen = q * (noise + exact)
        there = exact + gap
        logs = []
        for mean in (exact, there):
            ratio = ((seen * mean).sum(axis=2) - 0.5 * (mean * mean).sum(axis=2)) / sigma**2
            logs.append(np.logaddexp(math.log1p(-q), math.log(q) + ratio).sum(axis=1))
        if np.minimum(np.abs(exact).max(axis=2), np.abs(there).max(axis=2)).max() > 1e-9:
            mu = 0.0  # other records are not zero: the mixture has more than two components
        else:
            mu = q * math.sqrt(float((gap * gap).sum(axis=(1, 2)).mean())) / sigma
        return logs[1] - logs[0], mu


def _charged_scales(releaser: Any) -> FloatArray:
    """Return a copy of the scales of a releaser's schedule, as they were charged.

    What was charged costs a record at most 1. Scales that were changed after the charge, before the
    audit could copy them, are divided by what they cost in excess.
    """
    schedule = releaser.schedule
    excess = schedule.cost if releaser.sigma and not releaser.trust.devices else 1.0
    return np.array(schedule.scales) / (math.sqrt(excess) if excess > 1.0 + 1e-9 else 1.0)


@functools.cache
def _upper_triangle(side: int) -> tuple[Any, Any, FloatArray]:
    """Return rows and columns of the entries of an upper triangle, and their weights."""
    rows, columns = np.triu_indices(side)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def noise_of(releaser: Any) -> dict[int, Any]:
    """Return a memo with which `copy.deepcopy` shares a releaser's curator and random numbers."""
    names = ("_noise", "_mechanism", "_bits", "_draws", "_normals")
    parts = [releaser.curator, *(getattr(releaser, name, None) for name in names)]
    return {id(part): part for part in parts}


def _exact(releaser: Any) -> Any:
    """Return a copy of the releaser without noise, with its own records."""
    twin = copy.deepcopy(releaser, noise_of(releaser))
    twin._sigma = twin._scale = 0.0
    if _released(twin, OnRequest):
        twin.sampling, twin._bits = 1.0, None
    return twin


def _released(releaser: Any, *times: type) -> TypeGuard[Sum]:
    """Return whether a releaser is a sum with such release times."""
    return isinstance(releaser, Sum) and isinstance(releaser.times, times)


def _is_local(releaser: Any) -> TypeGuard[Sum]:
    """Return whether devices randomise the records of a sum alone."""
    return isinstance(releaser, Sum) and releaser.trust.per_record


def _log_density(twin: Any, seen: Any) -> FloatArray:
    """Return the log-density of what the attacker sees, given the newest records of a copy."""
    if isinstance(twin, Sum):
        message: Any = twin.device_mechanisms[0]
        return message.log_density(seen, twin._own)  # type: ignore[no-any-return]
    return twin.log_density(seen)  # type: ignore[no-any-return]


def can_tap(releaser: Releaser) -> bool:
    """Return whether the distribution of a releaser's output is known.

    It is known for the library's releasers, and for others that define `log_density` of their
    newest release given the records of a copy. A minimiser of a loss without `add` keeps its
    records outside, where a copy does not find them.
    """
    minimiser = isinstance(releaser, Minimiser) and releaser.holds_records
    return minimiser or isinstance(releaser, Sum) or hasattr(releaser, "log_density")
