"""One-pass private least squares for recommendation with private contexts."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import positive
from dpb_agents.recommendation.one_pass_linear import OnePass
from dpb_gym import portable
from dpb_gym.errors import AgentError
from dpb_gym.privacy import ContributionCap
from dpb_gym.problems.base import Array, Context
from dpb_gym.problems.stretch import Stretch
from dpb_gym.registry import register_agent

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

FEW = 16  # rounds whose rows fit in a core's cache
SHARE = 0.02  # of the squared distance of two rows, for lengths
KNOWN = 0.14  # standard deviation of log2 of a length that is used: a tenth of the length


@register_agent(
    "one-pass-linear-joint", supports=["recommendation"], protects=("joint", "user-round")
)
class OnePassLinearJoint(OnePass):
    """One-pass private Newton on noisy sums of curvature and rewards; contexts are private.

    See `OnePass`.

    The guarantee is joint privacy of one round of a user, or of all of them, replace-one: an
    adversary may see every recommendation except the user's own.

    A row consists of the isometric half of v v', times w_H, and of v times w_u and the reward,
    scaled to [-1/2, 1/2]. A candidate that is shorter than its round's others has shorter slopes
    in v, and the reward of a longer one counts less (`kernels.joint_records.joint_rows`). A
    trusted curator's rows also have the mean log length of the round's candidates, times w_l,
    w_l^2 = `SHARE`. From the release on that tells the typical length to a tenth, lengths are
    relative to it. Two rows differ by at most 1. Up to w_H^2 = w_u^2 / 8 the curvature costs the
    response nothing (docs/agents/one-pass-linear.md). theta is the posterior mean given the best
    combination of the releases, with the curvature shrunk by its known noise. Where every round
    offers the same arms, v v' is public and the agent is `OnePassLinear` on unit vectors v.

    Args:
        prior_mean: See `OnePass`; its length is learnt.
        max_rounds_per_user: See `OnePass`; k rounds move the sums by at most k times as much.
        curvature: w_H^2 / w_u^2, > 0.
        length: Typical length of a candidate without what its round's candidates share, if it is
            public, > 0. By default it is learnt. Before that, and without a trusted curator,
            lengths are relative to those of the same round, which needs no unit but biases theta
            where long rounds have other directions than short ones.

    Raises:
        AgentError: With a budget, for fixed arms and partial feedback: which rounds were observed
            would be released without noise.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [1.0, 1.5],
        "first": [0.03, 0.07],
        "curvature": [0.125, 0.2],
    }

    contrast: ClassVar[bool] = True
    norm: float = 1.5
    intercept: float = 0.35
    curvature: float = positive(0.2)
    length: float | None = positive(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protects = ("joint", "user" if self.max_rounds_per_user else "user-round")

    def _open(self, curator: Curator) -> None:
        self._arms: Array | None = None
        if self.problem.fixed_arms:
            if curator.private and self.problem.partial_feedback:
                raise AgentError(
                    "one-pass-linear-joint counts the observed rounds of fixed arms, and in a "
                    "rejection replay these reveal what the log's user saw: use one-pass-linear, "
                    "which protects rewards only"
                )
            super()._open(curator)
            self.stretches = False
            return
        B, n = self.theta.shape
        d, b = n - 1, self.intercept
        learns = self.length is None and curator.trust == "curator"
        self._weights = joint_weights(self.curvature, SHARE if learns else 0.0)
        self._lengths = np.full(B, self.length or 0.0)
        # Rewards are <v, t>, t = scale [theta; level / b], in units of their range. prior_mean
        # belongs to x and t to x over the lengths of its round, which are taken as uniform in
        # [0, 1], of mean 1/2 and variance 1/12.
        self._scale = np.append(np.ones(d), 1.0 / b) * math.sqrt(1.0 + b * b) / self._range
        known = self._mean * self._scale
        self._center = 0.5 * known
        self._prior = self._prior_covariance * np.outer(self._scale, self._scale)
        self._prior += np.outer(known, known) / 12.0
        size = float(np.trace(self._prior[:d, :d]) + (self._center**2).sum())
        # mean square of a coordinate of the noise of H, which is isometric, times t
        self._bent = 0.5 * (1.0 + 1.0 / n) * size / float(self._weights[0]) ** 2
        unit_noise = math.sqrt(1.0 / float(self._weights[1]) ** 2 + self._bent)
        model = self._model(unit_noise * math.sqrt(1.0 + b * b) * self._range)
        k = self.max_rounds_per_user
        self._cap = None if k is None else ContributionCap(k, B)
        width = n * (n + 3) // 2 + learns
        self.releaser = curator.weighted_sum(
            width,
            sensitivity=1.0,
            # of no effect, since no row is longer
            clip=longest_row(*self._weights) if curator.private else None,
            limit=k,
            schedule=partial(self._plan, model),
            model=model,
            what="running sums of curvature and response" + learns * " and log lengths",
        )
        self._history: list[Array] = []
        self._combinations = None
        if curator.private:
            schedule, sigma = self.releaser.schedule, self.releaser.sigma
            self._combinations = schedule.best_weights(sigma * unit_noise, 0.25 / d)
        self._rows = np.empty((B, width))
        self._recorded = np.zeros(B)

    def _learn(self, context: Context, reward: Array, observed: Array) -> None:
        if self.problem.fixed_arms:
            self._check_arms(context)
            super()._learn(context, reward, observed)
            return
        if self._cap is not None:
            # which rounds of a replay are observed is protected, so that all of them count
            observed = self._cap.admit(context.users) & observed
            self._directions[~observed] = 0.0
        response = np.clip(reward / self._range, -0.5, 0.5)
        agent_kernels.joint_records.joint_rows(
            context.features,
            self._phi,
            self._directions,
            response,
            self._lengths,
            self._weights,
            self._rows,
        )
        self.releaser.add(self._rows, users=context.users)
        # the number of records is public except in rejection replay
        rate = 1.0 / (self.problem.n_candidates or 1)
        self._recorded += rate if self.problem.partial_feedback else observed

    def play(self, rounds: Stretch) -> Array:
        n, B = rounds.shape
        rules = self.intercept, self._middle, self._range, self._lengths
        each = 1.0 / (self.problem.n_candidates or 1) if self.problem.partial_feedback else 1.0
        action, start = np.empty((n, B), np.int64), 0
        while start < n:
            left = self.releaser.schedule.ends[self._batches :][:1] - self.releaser.rounds
            part = slice(start, min([n, start + FEW, *(start + left).tolist()]))
            given = rounds.context.features[part], rounds.reward[part], rounds.observed[part]
            start, rows = part.stop, np.empty((part.stop - start, *self._rows.shape))
            agent_kernels.joint_records.play_greedy(
                given, self.theta, rules, self._weights, rows, action[part]
            )
            self.releaser.add_rounds(rows)
            for _ in rows:
                self._recorded += each
            self._update_if_due()
        return action

    def _check_arms(self, context: Context) -> None:
        """Raise AgentError unless the arms have the features of the first round."""
        assert context.arms is not None
        order = context.arms.argsort(axis=1)[:, :, None]
        arms = np.take_along_axis(context.features, order, axis=1)
        if self._arms is None:
            self._arms = arms
        elif not np.array_equal(arms, self._arms):
            raise AgentError(f"every round should offer the same arms, round {context.t} does not")

    def _update(self, batch: int) -> None:
        if self.problem.fixed_arms:
            super()._update(batch)
            return
        n = self.theta.shape[1]
        sums, std, uneven = self.releaser.value, 0.0, 1.0
        if self._combinations is not None:
            self._history.append(sums)
            weights = self._combinations.weights[batch]
            sums = np.zeros_like(sums)
            for weight, release in zip(weights, self._history):
                sums += weight * release
            std = self.releaser.sigma * float(self._combinations.std[batch])
            uneven = float(self._combinations.uneven[batch])
        curvature, response, of_length = (float(w) for w in self._weights)
        if of_length:
            self._learn_length(sums[:, -1] / of_length, std / of_length)
        m = n * (n + 1) // 2
        halves = np.ascontiguousarray(sums[:, :m]) / curvature
        responses = np.ascontiguousarray(sums[:, m : m + n]) / response
        b, noise, t = self.intercept, std / curvature, np.empty((len(sums), n))
        # a floor for exact sums keeps the matrices invertible
        floor = max((std / response) ** 2, 1e-6 * float(self.releaser.rounds))
        given = noise, 0.25 * uneven, std**2 * self._bent, floor, self._center, self._prior
        # The trace of the slopes' block is a share of the largest, taken as uniform in [0, 1], of
        # mean 1/2 and variance 1/12. The half's rows have n, n - 1, ... entries.
        most = np.maximum(self._recorded, 1e-9) / (1.0 + b * b)  # 0 records are possible
        trace = halves[:, [j * n - j * (j - 1) // 2 for j in range(n - 1)]].sum(axis=1)
        spread = 1.0 + 12.0 * (n - 1) * (noise / most) ** 2
        share = np.clip(0.5 + (trace / most - 0.5) / spread, 1e-3, 1.0)
        # as of unit vectors with this trace and the level, which is known
        number, constant = self._recorded - (1.0 - share) * most, b / np.sqrt(share)
        for one in (slice(r, r + 1) for r in range(len(sums))):
            agent_kernels.linear_records.joint_posterior(
                halves[one], responses[one], number[one], *given, *constant[one], t[one]
            )
        self.theta = t / self._scale

    def _learn_length(self, octaves: Array, noise: float) -> None:
        """Set the typical length in the replicates where it is known well enough.

        Args:
            octaves: Sums of the mean log2 lengths of rounds, over `OCTAVES`, ``(B,)``.
            noise: Their standard deviation.
        """
        most = agent_kernels.joint_records.OCTAVES
        records = np.maximum(self._recorded, 1e-9)
        mean = most * octaves / records
        # log2 of a round's lengths is taken to vary by 1
        variance = (most * noise / records) ** 2 + 1.0 / records
        known = (variance <= KNOWN**2) & (np.abs(mean) <= 0.5 * most - 1.0)
        for r in np.flatnonzero(known & (self._lengths == 0.0)):
            self._lengths[r] = portable.power(2.0, float(mean[r]))


def joint_weights(curvature: float, share: float = 0.0) -> Array:
    """Return (w_H, w_u, w_l) with w_H^2 = curvature w_u^2 and rows that differ by at most 1.

    Args:
        curvature: w_H^2 / w_u^2.
        share: w_l^2, the part of the squared distance that lengths have.
    """
    h = max(curvature, 0.125)
    most = (2.0 * h + 0.5 + 1.0 / (32.0 * h)) / (1.0 - share)
    return np.array([math.sqrt(curvature / most), math.sqrt(1.0 / most), math.sqrt(share)])


def longest_row(curvature: float, response: float, length: float) -> float:
    """Return the largest norm of a row with these weights, up to rounding."""
    return math.sqrt(curvature**2 + 0.25 * (response**2 + length**2)) * (1.0 + 1e-9)
