"""Multinomial-logit assortment (Cho & Sun, section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym import kernels, portable, state, validation
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems import exhaustive_search, rounds
from dpb_gym.problems.base import Field, Problem
from dpb_gym.problems.contexts import CONTEXT_NORMS, ContextSchedule, read_rank, rescale
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, ProblemInfo, Round
from dpb_gym.streams import Stream

RANDOM = {"random": (0.0, 1.0), "signed": (-1.0, 1.0)}
CHOICES: dict[str, dict[str, float]] = {"mnl": {}, "nested": {"nests": 4, "dissimilarity": 0.5}}
DESIGNS = ("gaussian", "uniform", "sphere", "low-rank")


@state.register
class AssortmentProblem(Problem):
    """Assortments of at most K of N items; one customer a round buys one of them or nothing.

    Round t has item features x_i ``(d,)`` and revenues r_i. The customer buys item i of the
    offered set S with probability exp(<x_i, theta>) / (1 + sum_{j in S} exp(<x_j, theta>)). The
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
            ``"signed"`` (uniform on [-1, 1], new each round), or N numbers that are non-negative
            or in [-1, 1].
        exactly: Whether slates must hold exactly K items.
        choice: ``"mnl"``, or a nested logit, which agents still model as MNL: ``"nested"`` or
            ``{"kind": "nested", "nests": 4, "dissimilarity": 0.5}``, item i in nest
            i mod nests, dissimilarity in (0, 1]. Its best slates are found by
            `dpb_gym.problems.exhaustive_search`, which limits their number.
        theta: Fixed parameter ``(d,)``; drawn from U[0, 1]^d per replicate by default.
        contexts: ``"drawn"`` independently in every round, or an oblivious sequence:
            ``"switched"``, ``"drifting"``, an array ``(n, N, d)`` or its file; see
            `dpb_gym.problems.contexts.ContextSchedule`.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    respects_availability = True  # by `Context.offered_revenues`

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
        exactly: bool = False,
        choice: Any = "mnl",
        theta: Any = None,
        contexts: Any = "drawn",
    ) -> None:
        self.horizon = validation.integer("horizon", horizon, 2)
        self.n_items = validation.integer("n_items", n_items, 1)
        self.capacity = validation.integer("capacity", capacity, 1, self.n_items)
        self.dim = validation.integer("dim", dim, 1)
        self.context_norm = validation.choice("context_norm", context_norm, CONTEXT_NORMS)
        self.design = validation.choice("design", design, DESIGNS)
        self.rank = read_rank(rank, self.dim, design, ("low-rank",))
        self.theta = validation.optional(validation.array, "theta", theta, (self.dim,))
        self.exactly = validation.flag("exactly", exactly)
        if isinstance(revenues, str):
            validation.choice("revenues", revenues, ("equal", *RANDOM))
            fixed = np.ones(self.n_items)
        else:
            fixed = validation.array("revenues", revenues, (self.n_items,))
            if fixed.min() < 0.0 and np.abs(fixed).max() > 1.0:
                raise ParameterError(
                    "revenues must be non-negative, or lie in [-1, 1], got values in "
                    f"[{fixed.min()}, {fixed.max()}]"
                )
        self.revenues = fixed.astype(np.float32)
        self._drawn_revenues = RANDOM.get(revenues) if isinstance(revenues, str) else None
        low, top = self._drawn_revenues or (self.revenues.min(), self.revenues.max())
        self._revenue_rows = np.zeros((0, self.n_items), np.float32)
        stretch = float(np.sqrt(self.dim / self.rank)) if self.design == "low-rank" else 1.0
        raw = 1.0 if self.design in ("uniform", "sphere") else portable.NORMAL_BOUND * stretch
        self._shape = (self.n_items, self.dim)
        self.schedule = ContextSchedule(contexts, self.horizon, self._shape, self.context_norm, raw)
        self.feature_bound = self.schedule.bound
        if not self.schedule.drawn and not isinstance(contexts, str):
            self.unused = {"design": "contexts that are drawn"}
        self.info = ProblemInfo(
            kind="assortment",
            horizon=self.horizon,
            dim=self.dim,
            # 0 is the reward without a purchase
            reward_range=(min(0.0, float(low)), max(0.0, float(top))),
            n_items=self.n_items,
            capacity=self.capacity,
            exactly=self.exactly or None,
            equal_revenues=self._drawn_revenues is None
            and bool((self.revenues == self.revenues[0]).all()),
        )
        self._read_choice(choice)

    def _read_choice(self, choice: Any) -> None:
        _, nested = validation.variant("choice", choice, CHOICES)
        self._nests = validation.integer("choice: nests", nested.get("nests", 1), 1, self.n_items)
        self._dissimilarity = validation.real(
            "choice: dissimilarity", nested.get("dissimilarity", 1.0), 0.0, 1.0, open_low=True
        )
        if self._dissimilarity < 1.0:
            exhaustive_search.check_searchable("choice 'nested'", self.info)

    def draw_hidden(self, rng: Generator) -> Hidden:
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
        if self._drawn_revenues is not None:
            fill = rounds.signed if self._drawn_revenues[0] else rounds.uniform
            fields["revenues"] = Field((self.n_items,), np.float32, Stream.REVENUES, fill)
        return fields

    def draw_features(self, rng: Generator, start: int, hidden: Hidden, out: Array) -> None:
        """Write features of one replicate's rounds start + 1, start + 2, ...; see `Field.fill`."""
        rows = out.reshape(-1, self.dim)
        if self.design == "uniform":
            rounds.signed(rng, start, hidden, rows)
        elif self.design == "low-rank":
            coefficients = portable.normals(rng, (len(rows), self.rank), np.float32)
            kernels.feature_rows.combine(coefficients, hidden["basis"], rows)
        else:
            portable.fill_normals(rng, rows)
            if self.design == "sphere":
                kernels.feature_rows.normalise(rows, kernels.feature_rows.SPHERE)
        rescale(rows, self.context_norm)

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        features = drawn["features"] if "features" in drawn else self.schedule.at(hidden, t)
        revenues = drawn["revenues"] if "revenues" in drawn else self.fixed_revenues(len(t))
        return Round(Context(int(t[0]), features, revenues=revenues), drawn["response"], {})

    def fixed_revenues(self, replicates: int) -> Array:
        """Return revenues that are the same in every round, ``(B, N)``."""
        if len(self._revenue_rows) < replicates:
            self._revenue_rows = np.tile(self.revenues, (replicates, 1))
        return self._revenue_rows[:replicates]

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        context = round_.context
        if self.exactly:
            self._check_full(action)
        B = len(action)
        choice = np.empty(B, np.int64)
        reward = np.empty(B)
        expected = np.empty(B)
        bad = kernels.mnl.outcome(
            context.features, hidden["theta"], context.revenues, action, self._nests,
            self._dissimilarity, round_.uniform, choice, reward, expected,
        )  # fmt: skip
        if bad:
            raise ActionError(
                f"slate {action[bad - 1].tolist()} of replicate {bad - 1} holds an item outside "
                f"0..{self.n_items - 1} (-1 leaves a place empty)"
            ).at(bad - 1)
        return Feedback(reward, choice=choice), expected

    def _check_full(self, action: Array) -> None:
        """Reject slates of fewer than K items."""
        listed = np.sort(action, axis=1)
        short = (listed[:, 0] < 0) | (np.diff(listed, axis=1) == 0).any(axis=1)
        if short.any():
            b = int(short.argmax())
            raise ActionError(
                f"slate {action[b].tolist()} of replicate {b} must hold exactly {self.capacity} "
                "different items"
            ).at(b)

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        context = round_.context
        if self._dissimilarity < 1.0:
            return exhaustive_search.best_action(self, [hidden], round_)
        return self.best_slates(hidden["theta"], context.features, context.offered_revenues)

    def best_slates(self, theta: Array, features: Array, revenues: Array) -> tuple[Array, Array]:
        """Return exact capacity-constrained best assortments under given parameters.

        Args:
            theta: ``(B, d)``.
            features: ``(B, N, d)``.
            revenues: ``(B, N)``, -inf for items that cannot be offered.

        Returns:
            Slates ``(B, K)`` (ascending, padded with -1) and expected revenues ``(B,)``.
        """
        B = len(features)
        utility = np.empty((B, self.n_items))
        kernels.mnl.utilities(features, theta, utility)
        slates = np.empty((B, self.capacity), np.int64)
        values = np.empty(B)
        kernels.mnl.best_slates(utility, revenues, self.capacity, self.exactly, slates, values)
        return slates, values
