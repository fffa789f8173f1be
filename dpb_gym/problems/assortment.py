"""Multinomial-logit assortment (Cho & Sun, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import (
    Array,
    Context,
    Feedback,
    Field,
    Hidden,
    Loss,
    Problem,
    ProblemInfo,
    Round,
)
from dpb_gym.problems.norms import CONTEXT_NORMS, GAUSSIAN_BOUND, rescale, rescaled_bound
from dpb_gym.problems.oblivious import ContextSchedule
from dpb_gym.streams import Stream

DESIGNS = ("gaussian", "uniform", "sphere", "low-rank")


class AssortmentProblem(Problem):
    """N items, at most K offered, one customer a round who buys one of them or nothing.

    Round t: item features x_i ``(d,)``, revenues r_i. The customer buys i of the offered
    set S with probability exp(<x_i, theta>) / (1 + sum_{j in S} exp(<x_j, theta>)). The
    reward is the revenue of the bought item.

    Args:
        horizon: Rounds T, at least 2.
        n_items: N, at least 1.
        capacity: K in 1..N.
        dim: Dimension d, at least 1.
        context_norm: ``"raw"``, ``"clip"`` (x / max(1, ||x||)) or ``"scale"``
            (x / sqrt(d)).
        design: Distribution of the raw features: ``"gaussian"`` N(0, I_d);
            ``"uniform"`` on [-1, 1]^d; ``"sphere"`` of radius 1; ``"low-rank"``
            Gaussian in a subspace of dimension `rank`, fixed per replicate, scaled so
            that E||x||^2 = d.
        rank: Dimension of the low-rank subspace, 1..d; max(1, d // 2) by default.
        revenues: ``"equal"`` (all 1), ``"random"`` (uniform on [0, 1], new each round),
            or N non-negative numbers.
        theta: Fixed parameter ``(d,)``; drawn from U[0, 1]^d per replicate by default.
        contexts: ``"drawn"`` anew in every round, or an oblivious sequence: ``"switched"``,
            ``"drifting"``, an array ``(n, N, d)`` or its file; see
            `dpb_gym.problems.oblivious.ContextSchedule`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    kind: ClassVar[str] = "assortment"

    def __init__(
        self,
        horizon: int = 10_000,
        n_items: int = 100,
        capacity: int = 10,
        dim: int = 5,
        context_norm: str = "raw",
        design: str = "gaussian",
        rank: int | None = None,
        revenues: Any = "equal",
        theta: Any = None,
        contexts: Any = "drawn",
    ) -> None:
        self.horizon = validation.integer("horizon", horizon, 2)
        self.n_items = validation.integer("n_items", n_items, 1)
        self.capacity = validation.integer("capacity", capacity, 1, self.n_items)
        self.dim = validation.integer("dim", dim, 1)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self.design = validation.choice("design", design, DESIGNS)
        if rank is not None and design != "low-rank":
            raise ParameterError("rank applies to design='low-rank' only")
        self.rank = validation.integer(
            "rank", max(1, self.dim // 2) if rank is None else rank, 1, self.dim
        )
        self.theta = None if theta is None else validation.array("theta", theta, (self.dim,))
        self.random_revenues = isinstance(revenues, str) and revenues == "random"
        if isinstance(revenues, str):
            validation.choice("revenues", revenues, ("equal", "random"))
            fixed = np.ones(self.n_items)
        else:
            fixed = validation.array("revenues", revenues, (self.n_items,), low=0.0)
        self.revenues = fixed.astype(np.float32)
        top = 1.0 if self.random_revenues else float(self.revenues.max())
        self._revenue_rows = np.empty((0, self.n_items), np.float32)
        raw = {"gaussian": GAUSSIAN_BOUND, "uniform": 1.0, "sphere": 1.0}.get(
            self.design, GAUSSIAN_BOUND * float(np.sqrt(self.dim / self.rank))
        )
        self._shape = (self.n_items, self.dim)
        self.schedule = ContextSchedule(contexts, self.horizon, self._shape, self.context_norm)
        bound = rescaled_bound(raw, self.context_norm, self.dim)
        self.feature_bound = self.schedule.bound or bound
        self.info = ProblemInfo(
            kind=self.kind,
            horizon=self.horizon,
            dim=self.dim,
            reward_range=(0.0, top),
            n_items=self.n_items,
            capacity=self.capacity,
            equal_revenues=not self.random_revenues
            and bool((self.revenues == self.revenues[0]).all()),
        )

    def draw_hidden(self, rng: np.random.Generator) -> Hidden:
        theta = rng.random(self.dim)
        hidden = {"theta": theta if self.theta is None else self.theta}
        if self.design == "low-rank":
            basis = portable.normals(rng, (self.dim, self.rank))
            kernels.linalg.orthonormalise(basis)
            hidden["basis"] = basis * np.sqrt(self.dim / self.rank)
        draw = partial(self.draw_features, rng, 0, hidden)
        return {**hidden, **self.schedule.hidden(draw, self._shape)}

    def fields(self) -> dict[str, Field]:
        fields = {}
        if self.schedule.drawn:
            fields["features"] = Field(self._shape, np.float32, Stream.FEATURES, self.draw_features)
        if self.random_revenues:
            fields["revenues"] = Field((self.n_items,), np.float32, Stream.REVENUES)
        return fields

    def draw_features(
        self, rng: np.random.Generator, start: int, hidden: Mapping[str, Array], out: Array
    ) -> None:
        """Features of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        rows = out.reshape(-1, self.dim)
        contexts = kernels.contexts
        if self.design == "uniform":
            rng.random(out=rows, dtype=np.float32)
            rows *= np.float32(2.0)
            rows -= np.float32(1.0)
        elif self.design == "low-rank":
            coefficients = portable.normals(rng, (len(rows), self.rank), np.float32)
            contexts.combine(coefficients, hidden["basis"], rows)
        else:
            portable.fill_normals(rng, rows)
            if self.design == "sphere":
                contexts.normalise(rows, contexts.SPHERE)
        rescale(rows, self.context_norm)

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        features = drawn["features"] if "features" in drawn else self.schedule.at(hidden, t)
        B = features.shape[0]
        if self.random_revenues:
            revenues = drawn["revenues"]
        else:
            if len(self._revenue_rows) < B:
                self._revenue_rows = np.tile(self.revenues, (B, 1))
            revenues = self._revenue_rows[:B]
        return Round(Context(int(t[0]), features, revenues=revenues), drawn["response"], {})

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        context = round_.context
        B = len(action)
        choice, reward, expected = np.empty(B, np.int64), np.empty(B), np.empty(B)
        bad = kernels.mnl.outcome(
            context.features,
            hidden["theta"],
            context.revenues,
            action,
            round_.uniform,
            choice,
            reward,
            expected,
        )
        if bad:
            raise ActionError(
                f"slate {action[bad - 1].tolist()} of replicate {bad - 1} holds an item outside "
                f"0..{self.n_items - 1} (-1 leaves a place empty)"
            ).at(bad - 1)
        return Feedback(reward, choice=choice), expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        context = round_.context
        assert context.revenues is not None
        slates, values = self.best_slates(hidden["theta"], context.features, context.revenues)
        return slates, values

    def best_slates(self, theta: Array, features: Array, revenues: Array) -> tuple[Array, Array]:
        """Exact capacity-constrained best assortments under given parameters.

        Args:
            theta: ``(B, d)``.
            features: ``(B, N, d)``.
            revenues: ``(B, N)``, non-negative.

        Returns:
            Slates ``(B, K)`` (ascending, padded with -1) and expected revenues ``(B,)``.
        """
        B = len(features)
        utility = np.empty((B, self.n_items))
        kernels.mnl.utilities(features, theta, utility)
        slates, values = np.empty((B, self.capacity), np.int64), np.empty(B)
        kernels.mnl.best_slates(utility, revenues, self.capacity, slates, values)
        return slates, values

    def loss(self, theta: Array, context: Context, action: Array, feedback: Feedback) -> Loss:
        """Negative log-likelihood of the choice; with ||x|| <= 1 its gradient norm is at
        most 2 and its Hessian's trace at most 1 (errata A2, A3)."""
        B = len(action)
        value, gradient = np.empty(B), np.empty((B, self.dim))
        hessian = np.empty((B, self.dim, self.dim))
        assert feedback.choice is not None
        kernels.mnl.loss_terms(
            context.features, theta, action, feedback.choice, value, gradient, hessian
        )
        return Loss(value, gradient, hessian)
