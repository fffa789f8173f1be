"""Private and exact minimisers of a summed convex loss, for a batch of replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import BudgetExceeded, FixedError, HorizonExceeded, ParameterError, shown
from dpb_gym.privacy.events import Event
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.objective_perturbation import (
    ObjectivePerturbation,
    PerturbedObjectiveEvent,
    objective_plan,
)
from dpb_gym.privacy.releasers.releaser import CuratorProtocol, Releaser
from dpb_gym.validation import FloatArray

Loss = Callable[..., tuple[float, FloatArray, FloatArray]]
"""``loss(theta, *columns)``, see `Minimiser`."""
EXACT_TOLERANCE = 1e-8


class Minimiser(Releaser):
    """Releases minimisers of perturbed objectives (see `dpb_gym.privacy.objective_perturbation`).

    It holds the records of a loss that is given as a function. A record has the same number of
    parts in every `add`, for example features and a response. That the loss has the bounds of
    `gradient_bound` and `curvature` is not checked, so the guarantee is declared.

    A subclass can hold the records itself: it has `add`, `minimise` and `derivatives`, and ensures
    the bounds that it passes on, by clipping contexts to the unit ball, say. All
    `calls` releases of every replicate are charged together, because replicates may release in
    different rounds. Without a budget: the minimiser of the loss plus a ridge.

    Args:
        curator: See `Releaser`.
        dim: Number of parameters d.
        gradient_bound: See `dpb_gym.privacy.objective_plan`. Needed with a budget, unless
            `calibration` is a plan.
        curvature: See `gradient_bound`.
        calls: Largest number of releases per replicate; no limit without a budget.
        records: Largest number of records, for the solver's tolerance.
        calibration: Method of `dpb_gym.privacy.objective_plan`, or a plan, for example a paper's,
            which is charged at its true cost.
        ridge: Coefficient of ``|theta|^2 / 2`` without a budget.
        loss: ``loss(theta, *columns) -> (value, gradient (d,), Hessian (d, d))``, summed over the
            records of one replicate, without ridge. A column has one part of all records,
            ``(n, ...)``. The loss must depend on its arguments only. None: the subclass has a
            method `loss`, or holds the records itself.
        share: See `Releaser`.
        what: See `Releaser`.

    Attributes:
        count: Records per replicate so far, of a loss that is a function.
        centre: Public centre ``(dim,)`` of the ridge penalty ``ridge / 2 |theta - centre|^2``; 0
            unless it is set in begin.
    """

    evolves: ClassVar[tuple[str, ...]] = ("calls", "centre", "_released", "_columns+", "count")
    enforces = False
    """Whether the class itself enforces the bounds of a loss that is a function."""

    def __init__(
        self,
        curator: CuratorProtocol,
        dim: int,
        *,
        gradient_bound: float | None = None,
        curvature: float | None = None,
        calls: int = 1,
        records: int = 0,
        calibration: str | ObjectivePerturbation = "verified",
        ridge: float = 1.0,
        loss: Loss | None = None,
        share: float | None = None,
        what: str = "private MLEs",
    ) -> None:
        if loss is not None:
            self.loss: Loss = loss
        elif not self.has_loss and type(self).minimise is Minimiser.minimise:
            raise ParameterError("give the loss whose minimisers are released")
        self.dim = validation.integer("dim", dim, 1)
        self.max_calls = validation.integer("calls", calls, 1)
        given = isinstance(calibration, ObjectivePerturbation)
        if curator.private and not given and None in (gradient_bound, curvature):
            raise ParameterError(
                "give gradient_bound and curvature, the largest that one record's loss can have"
            )
        # built-in numbers: those of NumPy can overflow
        bound = partial(validation.optional, validation.real, low=0.0, open_low=True)
        gradient_bound = bound("gradient_bound", gradient_bound)
        curvature = bound("curvature", curvature)
        records = validation.integer("records", records, 0)
        self._calibration = calibration
        self._bounds: dict[str, Any] = {
            "dim": self.dim,
            "gradient_bound": gradient_bound,
            "curvature": curvature,
            "calls": self.max_calls,
            "records": records,
            "every_order": curator.budget is None or curator.budget.rho is not None,
        }
        self._ridge = validation.real("ridge", ridge, 0.0, open_low=True)
        self.calls: NDArray[np.int64] = np.zeros(curator.replicates, np.int64)
        self._released = np.zeros((curator.replicates, self.dim))
        self._centre: FloatArray = np.zeros(self.dim)
        self._most = records or curator.horizon
        self._columns: list[NDArray[Any]] = []
        self.count = 0
        super().__init__(curator, share=share, what=what)
        if curator.private and self.has_loss and not self.enforces:
            self.basis = f"declared (loss of {what}: gradient_bound and curvature)"
        if curator.private and given:
            if gradient_bound is None or curvature is None:
                self.basis = f"declared (calibration of {what})"
            else:
                _check_plan(calibration, self.dim, gradient_bound, curvature)

    @property
    def has_loss(self) -> bool:
        """Whether the loss is a function, whose records are held here."""
        return hasattr(self, "loss")

    @property
    def holds_records(self) -> bool:
        """Whether the records are held by the releaser, so that a copy of it has them."""
        return self.has_loss or type(self).add is not Minimiser.add

    @property
    def centre(self) -> FloatArray:
        return self._centre.copy()

    @centre.setter
    def centre(self, value: ArrayLike) -> None:
        if self.curator.rounds.attended or self.calls.any():
            raise FixedError(
                f"the centre of {self.what} is set in begin: later it could depend on raw data"
            )
        self._centre = validation.array("centre", value, (self.dim,)).copy()

    def _calibrated(self, rho: float) -> ObjectivePerturbation:
        if isinstance(self._calibration, ObjectivePerturbation):
            return self._calibration
        return objective_plan(rho, method=self._calibration, **self._bounds)

    def cost(self, rho: float) -> Event:
        return replace(self._calibrated(rho).event, count=self.max_calls)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._plan = None if rho is None else self._calibrated(rho)
        self._noise = noise

    @property
    def plan(self) -> ObjectivePerturbation | None:
        """Ridge, noise, tolerance and cost of one release; None if exact."""
        self.ready()
        return self._plan

    def release(self, due: ArrayLike | None = None) -> FloatArray:
        """Release minimisers for the replicates that are due.

        Args:
            due: ``(B,)`` bool, a function of releases and public facts only; all by default.

        Returns:
            Private parameters (B, d), updated where `due`.

        Raises:
            BudgetExceeded: If a replicate has used all its calls; nothing is released.
            ParameterError: If the minimiser misses the tolerance, because the loss is not convex
                or its derivatives are inconsistent; nothing is released.
        """
        plan = self.plan
        asked = np.ones(self.replicates, bool) if due is None else np.asarray(due, dtype=bool)
        lanes = np.flatnonzero(asked)
        # the ridge around the centre is a ridge around 0 and a linear term
        pull = (self._ridge if plan is None else plan.ridge) * self._centre
        linear = np.zeros((self.replicates, self.dim)) - pull
        if plan is None:
            minimisers, norms = self.minimise(asked, linear, self._ridge, EXACT_TOLERANCE)
            self._released[lanes] = minimisers[lanes]
        else:
            if (self.calls[lanes] >= self.max_calls).any():
                raise BudgetExceeded(
                    f"all {self.max_calls} releases of {self.what} are used up; nothing was "
                    "released"
                )
            # drawn now and not stored, so that a stolen checkpoint reveals none of it
            draws = np.empty((len(lanes), 2, self.dim))
            for b, own in zip(lanes, draws):
                self._noise.fill(int(b), own)
            linear[lanes] += plan.sigma * draws[:, 0]
            # the proof needs a minimiser of this gradient norm, whatever the solver says
            minimisers, norms = self.minimise(asked, linear, plan.ridge, plan.tolerance)
            _check(norms[lanes], plan.tolerance)
            self._released[lanes] = minimisers[lanes] + plan.output_std * draws[:, 1]
        self.calls[lanes] += 1
        return self._released.copy()

    @property
    def value(self) -> FloatArray:
        """Newest releases (B, d); zeros before the first."""
        return self._released.copy()

    def add(self, *parts: ArrayLike) -> None:
        """Add one record per replicate.

        Args:
            *parts: Arrays ``(B, ...)``.

        Raises:
            HorizonExceeded: Beyond the declared number of records; nothing changes.
            ParameterError: If the parts have other shapes than before; nothing changes.
        """
        self._store([np.asarray(part)[None] for part in parts])

    def add_rounds(self, *columns: ArrayLike) -> None:
        """Add the records of several rounds, ``(n, B, ...)`` each; see `add`."""
        self._store([np.asarray(column) for column in columns])

    def _store(self, new: list[NDArray[Any]]) -> None:
        if not self.has_loss:
            raise ParameterError(f"{type(self).__name__} holds no records: it has no loss")
        self.ready()
        n = len(new[0]) if new else 0
        if not self._columns:
            self._columns = [np.zeros((0, *column.shape[1:]), column.dtype) for column in new]
        shapes = [(n, *stored.shape[1:]) for stored in self._columns]
        if not new or [x.shape for x in new] != shapes or new[0].shape[1:2] != (self.replicates,):
            raise ParameterError(
                f"parts of a record of {self.what} must have the shapes of the first one, with "
                f"{self.replicates} replicates; got {[x.shape[1:] for x in new]}"
            )
        if self._most is not None and self.count + n > self._most:
            raise HorizonExceeded(
                f"{self.what}: declared for {self._most} records per replicate; nothing was added"
            )
        for i, column in enumerate(new):
            if self.count + n > len(self._columns[i]):
                # doubled, so that n records cost O(n) copies in all
                grown = np.zeros((2 * (self.count + n), *column.shape[1:]), column.dtype)
                grown[: self.count] = self._columns[i][: self.count]
                self._columns[i] = grown
            self._columns[i][self.count : self.count + n] = column
        self.count += n

    def memory(self, rounds: int | None = None) -> int:
        if rounds is None or not self._columns:
            return sum(column.nbytes for column in self._columns)
        capacity = peak = len(self._columns[0])
        rounds = rounds if self._most is None else min(rounds, self._most)
        while capacity < rounds:
            # The old and the new arrays are in memory while records are copied.
            peak, capacity = 2 * capacity, 2 * (capacity + 1)
        return max(peak, rounds) * sum(column[:1].nbytes for column in self._columns)

    def minimise(
        self, due: NDArray[np.bool_], linear: FloatArray, ridge: float, tolerance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return minimisers of the records' loss + ``ridge/2 |theta|^2 + linear.theta``.

        Args:
            due: Replicates to solve, (B,) bool.
            linear: Linear terms (B, d).
            ridge: Coefficient of ``|theta|^2 / 2``, positive.
            tolerance: Gradient norm to reach.

        Returns:
            Minimisers (B, d) and remaining gradient norms (B,), where due.
        """
        points = self._released.copy()
        norms = np.zeros(len(linear))
        state = (self._losses, due, points, norms, np.empty((*linear.shape, self.dim)))
        kernels.newton.minimise(*state, ridge=ridge, linear=linear, precision=tolerance)
        _check(norms[due], tolerance)
        return points, norms

    def derivatives(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return gradients (B, d) and Hessians (B, d, d) of the records' loss, for audits."""
        if not self.has_loss:
            raise ParameterError(f"{type(self).__name__} has no derivatives")
        sums = [self._summed(b, point) for b, point in enumerate(theta)]
        return np.stack([each[1] for each in sums]), np.stack([each[2] for each in sums])

    def _summed(self, replicate: int, theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss of a replicate's records and its derivatives."""
        if not self.count:
            return 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        own = (np.ascontiguousarray(x[: self.count, replicate]) for x in self._columns)
        return self.loss(theta, *own)

    def _losses(
        self,
        which: NDArray[np.bool_],
        points: FloatArray,
        values: FloatArray,
        gradients: FloatArray,
        hessians: FloatArray,
    ) -> None:
        square = (self.dim, self.dim)
        for b in np.flatnonzero(which):
            value, gradient, hessian = self._summed(int(b), points[b].copy())
            if np.shape(gradient) != (self.dim,) or np.shape(hessian) != square:
                raise ParameterError(
                    f"the loss must return a gradient ({self.dim},) and a Hessian {square}; got "
                    f"{np.shape(gradient)} and {np.shape(hessian)}"
                )
            if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
                raise ParameterError("the loss returned NaN or infinity")
            values[b], gradients[b], hessians[b] = value, gradient, hessian


LossMinimiser = Minimiser
"""Older spelling: the name of a minimiser whose loss is a function."""


def _check_plan(plan: Any, dim: int, gradient_bound: float, curvature: float) -> None:
    """Raise ParameterError if the event of a plan costs less than the plan's noise."""
    event = plan.event
    known = type(plan) is ObjectivePerturbation and type(event) is PerturbedObjectiveEvent
    if known and plan.ridge > 0.0 and plan.output_std > 0.0:
        least = {
            "ratio": curvature / plan.ridge,
            "sensitivity": 2.0 * gradient_bound,
            "dim": dim,
            "output_mu": 2.0 * plan.tolerance / (plan.ridge * plan.output_std),
        }
        # negated, so that NaN is refused; the factor allows for rounding
        enough = all(getattr(event, name) >= least[name] * (1 - 1e-9) for name in least)
        if enough and plan.dim == dim and event.sigma <= plan.sigma * (1 + 1e-9):
            return
    raise ParameterError(
        f"the event of this calibration does not follow from its ridge and noise: {shown(plan)}; "
        "take objective_plan or objective_csw"
    )


def _check(norms: FloatArray, tolerance: float) -> None:
    if not (norms <= tolerance).all():
        raise ParameterError(
            f"Newton's method stopped at gradient norm {norms.max():.3g}, above the tolerance "
            f"{tolerance:.3g}, so nothing was released; is the loss convex, and do its gradient "
            "and Hessian belong to it?"
        )
