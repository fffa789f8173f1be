"""Private and exact minimisers of a summed convex loss, for a batch of replicates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.privacy.checks import FloatArray, count, positive, records
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.objective import ObjectivePerturbation

Loss = Callable[[int, FloatArray], tuple[float, FloatArray, FloatArray]]
MAX_STEPS = 200


class PerturbedMinimiser:
    """Releases minimisers of perturbed objectives (see `dpb_gym.privacy.objective`).

    The records and their loss stay with the caller: each call of `release` gets a function
    that sums the loss over all records so far. The caller answers for the bounds of gradient
    and curvature that the calibration assumes, that is, for clipping contexts to the unit ball.

    Args:
        plan: Ridge, noise, tolerance and cost of one release.
        replicates: Number of replicates B.
        calls: Largest number of releases.
        noise: Source of the noise; the releaser spawns its own stream from it.
        ledger: Charged at each release.
        what: What is released, in words.
        parallel: Name of a parallel group, if every release has records of its own.
    """

    def __init__(
        self,
        plan: ObjectivePerturbation,
        replicates: int,
        *,
        calls: int,
        noise: NoiseSource,
        ledger: Ledger,
        what: str = "private MLE",
        parallel: str | None = None,
    ) -> None:
        self.plan = plan
        self.replicates = count("replicates", replicates)
        self.max_calls = count("calls", calls)
        if not isinstance(noise, NoiseSource):
            raise ParameterError(
                "objective perturbation needs a NoiseSource; the guarantee of secure (integer) "
                "noise does not carry over to it"
            )
        if noise.replicates != self.replicates:
            raise ParameterError(
                f"the noise source has {noise.replicates} replicates; expected {replicates}"
            )
        self.calls = 0
        self.dim = plan.dim
        self._noise = noise.spawn()
        self._ledger, self._what, self._parallel = ledger, what, parallel

    def release(self, loss: Loss, start: ArrayLike | None = None) -> FloatArray:
        """Draws the perturbation, minimises and covers the inexactness.

        Args:
            loss: ``loss(b, theta) -> (value, gradient (d,), Hessian (d, d))`` of replicate b,
                summed over its records, without ridge.
            start: Where to start, (B, d); changes nothing but the time.

        Returns:
            Private parameters (B, d).

        Raises:
            BudgetExceeded: If the ledger refuses, or all calls are used up.
            ParameterError: If Newton's method does not reach the tolerance (the loss is then
                not convex, or its derivatives do not fit together).
        """
        if self.calls >= self.max_calls:
            raise BudgetExceeded(
                f"all {self.max_calls} releases of {self._what} are used up; nothing was released"
            )
        self._ledger.charge(self.plan.event, what=self._what, parallel=self._parallel)
        self.calls += 1
        linear = self.plan.sigma * self._noise.normal(self.dim)
        cover = self.plan.output_std * self._noise.normal(self.dim)
        theta, _ = minimise(
            loss,
            linear,
            self.plan.ridge,
            self.plan.tolerance,
            start=start,
        )
        return theta + cover

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""
        return {"calls": self.calls, "noise": self._noise.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self.calls = int(state["calls"])
        self._noise.load_state(state["noise"])


class ExactMinimiser:
    """The non-private twin: the minimiser of the loss plus a ridge, nothing added.

    Args:
        dim: Number of parameters d.
        replicates: Number of replicates B.
        ridge: Coefficient of ``|theta|^2 / 2``.
        tolerance: Gradient norm to reach.
        ledger: If given, every release is disclosed to it.
        what: What is released, in words.
    """

    def __init__(
        self,
        dim: int,
        replicates: int,
        *,
        ridge: float = 1.0,
        tolerance: float = 1e-8,
        ledger: Ledger | None = None,
        what: str = "exact MLE",
    ) -> None:
        self.dim = count("dim", dim)
        self.replicates = count("replicates", replicates)
        self.ridge = positive("ridge", ridge)
        self.tolerance = positive("tolerance", tolerance)
        self._ledger, self._what = ledger, what
        self.calls = 0

    def release(self, loss: Loss, start: ArrayLike | None = None) -> FloatArray:
        """The minimisers (B, d); see `PerturbedMinimiser.release`."""
        if self._ledger is not None:
            self._ledger.disclose(self._what)
        self.calls += 1
        linear = np.zeros((self.replicates, self.dim))
        theta, _ = minimise(loss, linear, self.ridge, self.tolerance, start=start)
        return theta

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs."""
        return {"calls": self.calls}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self.calls = int(state["calls"])


def minimise(
    loss: Loss,
    linear: FloatArray,
    ridge: float,
    tolerance: float,
    *,
    start: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Damped Newton for ``loss(theta) + ridge/2 |theta|^2 + linear.theta``, replicate by replicate.

    Args:
        loss: See `PerturbedMinimiser.release`.
        linear: Linear terms (B, d).
        ridge: Coefficient of ``|theta|^2 / 2``, positive, which makes the minimiser unique.
        tolerance: Gradient norm to reach.
        start: Starting points (B, d); zeros by default.

    Returns:
        Minimisers (B, d) and the certified gradient norms (B,).

    Raises:
        ParameterError: If the tolerance is not reached within 200 steps.
    """
    batch, dim = linear.shape
    points = (
        np.zeros((batch, dim)) if start is None else records("start", start, (batch, dim)).copy()
    )
    norms = np.empty(batch)
    for b in range(batch):
        points[b], norms[b] = _newton(loss, b, points[b].copy(), linear[b], ridge, tolerance)
    return points, norms


def _newton(
    loss: Loss, b: int, theta: FloatArray, linear: FloatArray, ridge: float, tolerance: float
) -> tuple[FloatArray, float]:
    dim = theta.size

    def evaluate(point: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        value, gradient, hessian = loss(b, point)
        if np.shape(gradient) != (dim,) or np.shape(hessian) != (dim, dim):
            raise ParameterError(
                f"the loss must return a gradient ({dim},) and a Hessian ({dim}, {dim}); got "
                f"{np.shape(gradient)} and {np.shape(hessian)}"
            )
        total = float(value) + 0.5 * ridge * float((point * point).sum())
        return (
            total + float((linear * point).sum()),
            gradient + ridge * point + linear,
            hessian + ridge * np.eye(dim),
        )

    value, gradient, hessian = evaluate(theta)
    norm = math.sqrt(float((gradient * gradient).sum()))
    for _ in range(MAX_STEPS):
        if norm <= tolerance:
            return theta, norm
        if not (math.isfinite(value) and math.isfinite(norm) and np.isfinite(hessian).all()):
            raise ParameterError("the loss returned NaN or infinity")
        try:
            np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError as error:
            raise ParameterError(
                "the loss is not convex: its Hessian has a negative eigenvalue"
            ) from error
        step = -np.linalg.solve(hessian, gradient)
        slope = float((gradient * step).sum())
        length = 1.0
        while True:
            trial = theta + length * step
            new_value, new_gradient, new_hessian = evaluate(trial)
            new_norm = math.sqrt(float((new_gradient * new_gradient).sum()))
            # near the minimum values no longer tell, gradients still do
            if new_value <= value + 1e-4 * length * slope or new_norm <= 0.9 * norm:
                break
            length *= 0.5
            if length < 1e-12:
                raise ParameterError(_stuck(norm, tolerance))
        theta, value, gradient, hessian, norm = (
            trial,
            new_value,
            new_gradient,
            new_hessian,
            new_norm,
        )
    raise ParameterError(_stuck(norm, tolerance))


def _stuck(norm: float, tolerance: float) -> str:
    return (
        f"Newton's method stopped at gradient norm {norm:.3g}, above the tolerance "
        f"{tolerance:.3g}, so nothing was released; is the loss convex, and do its gradient and "
        "Hessian belong to it?"
    )
