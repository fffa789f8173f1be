"""Linear policies on a public Gram matrix and released reward sums."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_gym import kernels, portable, validation
from dpb_gym.agent import Agent, register_agent
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

RULES = ("greedy", "ucb", "ts")
SUPPORTS = ["recommendation"]
WIDTHS = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0]


@register_agent("lin-greedy", supports=SUPPORTS, rule="greedy", centre=True)
@register_agent("lin-ucb", supports=SUPPORTS, rule="ucb")
@register_agent("lin-ts", supports=SUPPORTS, rule="ts")
class LinearPolicy(Agent):
    """Ridge regression on rewards: greedy, LinUCB or linear Thompson sampling.

    The policy keeps A = ridge I + sum x x' over the recommended candidates' features, which
    are public, and sees the rewards only through releases of b = sum r x. It plays
    the largest <x, theta> (``greedy``), <x, theta> + alpha ||x||_{A^-1} (``ucb``), both with
    theta = A^-1 b, or <x, theta> for a draw theta ~ N(A^-1 b, v^2 A^-1) (``ts``).

    With ``batch=1`` these are LinUCB (Li et al. 2010) and linear Thompson sampling (Agrawal &
    Goyal 2013). `AdaPrivate` is the same policy on noisy sums.

    Args:
        rule: ``"greedy"``, ``"ucb"`` or ``"ts"``.
        alpha: Width of the bonus of ``ucb``, >= 0.
        v: Width of the draw of ``ts``, >= 0.
        decay: The width of the draw in batch k is ``v decay^(k - 1)``, in (0, 1].
        ridge: lambda, > 0.
        batch: Rounds between releases of b; where only one in n_candidates rounds is
            observed (rejection replay), n_candidates times as many.
        centre: Subtract the middle of the reward's range. The features have no
            intercept, so this removes a large bias at no cost in privacy (erratum R9).
            The papers' agents do not; ``lin-greedy`` does, because without exploration
            the bias can keep it on a wrong candidate for ever.
        intercept: Value of a constant feature, which learns the rewards' level; 0 for none.
            Features and constant together are scaled back into the unit ball, so private sums
            keep their sensitivity, and their noise grows by ``sqrt(1 + intercept^2)``.
        forced_exploration: Recommend a uniformly random candidate with probability
            ``min(1, d log(t) / (gamma t))`` in round t (RU, section 6.2). Decided without any
            data, so it costs no privacy.
        gamma: Of the forced exploration, > 0; None for d, hence about ``log(T)^2 / 2`` random
            rounds.

    Attributes:
        tuning_grid: Parameters worth tuning, per registered name.
        releaser: Takes the raw rewards; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not
            bounded.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "lin-greedy": {"ridge": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]},
        "lin-ucb": {"alpha": WIDTHS},
        "lin-ts": {"v": WIDTHS},
    }

    def __init__(
        self,
        rule: str = "ucb",
        alpha: float = 1.0,
        v: float = 1.0,
        ridge: float = 1.0,
        batch: int = 1,
        centre: bool = False,
        intercept: float = 0.0,
        decay: float = 1.0,
        forced_exploration: bool = False,
        gamma: float | None = None,
    ) -> None:
        self.rule = validation.choice("rule", rule, RULES)
        self.alpha = validation.real("alpha", alpha, 0.0)
        self.v = validation.real("v", v, 0.0)
        self.ridge = validation.real("ridge", ridge, 0.0, open_low=True)
        self.batch = validation.integer("batch", batch, 1)
        self.centre = validation.flag("centre", centre)
        self.intercept = validation.real("intercept", intercept, 0.0)
        self.decay = validation.real("decay", decay, 0.0, 1.0, open_low=True)
        self.forced_exploration = validation.flag("forced_exploration", forced_exploration)
        self.gamma = None if gamma is None else validation.real("gamma", gamma, 0.0, open_low=True)
        self.releaser: Any

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"{type(self).__name__} plays recommendation, not {problem.kind}")
        B, d = streams.replicates, problem.dim + (self.intercept > 0.0)
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        self._shift = 0.5 * (low + high) if self.centre else 0.0
        self._interval = self.batch
        if problem.partial_feedback:
            assert problem.n_candidates is not None
            self._interval *= problem.n_candidates
        self._reward = (low - self._shift, high - self._shift)
        self.releaser = self._sums(problem, curator, d)
        self._width = self._first_width(d)
        self._exploration = 0.0
        if self.forced_exploration:
            self._exploration = problem.dim / (self.gamma or problem.dim)
        self._rounds = 0
        self._stretched: Array | None = None
        self._response = np.zeros((B, d))
        self._chosen = np.empty((B, d))
        self._ones = np.ones(B)
        self._all = np.ones(B, bool)
        self._growth = np.empty(B)
        identity = np.broadcast_to(np.eye(d), (B, d, d))
        # the ridge of unscaled features
        ridge = self.ridge / (1.0 + self.intercept * self.intercept)
        draws = 2 * self.forced_exploration
        if self.rule == "ts":
            self._factor = identity * math.sqrt(ridge)
            draws += d
        else:
            self._inverse = identity / ridge
        self._dim = d
        if draws:
            self._normals = streams.normals(draws)

    def _sums(self, problem: ProblemInfo, curator: Curator, width: int) -> Any:
        """Makes the releaser of the reward sums."""
        return curator.batch_sum(width, reward=self._reward, cumulative=True)

    def _first_width(self, dim: int) -> float:
        """Width of the first batch's draws."""
        return self.v

    def act(self, context: Context) -> Array:
        action = np.empty(len(self._response), np.int64)
        features, draws = self._features(context), None
        if self.rule == "ts" or self._exploration:
            draws = self._normals.next()
        if self.rule == "ts":
            assert draws is not None
            xi = draws if not self._exploration else np.ascontiguousarray(draws[:, : self._dim])
            width = self._width * portable.power(self.decay, self._rounds // self._interval)
            zoo.linear.choose_sampled(features, self._factor, self._response, width, xi, action)
        else:
            alpha = self.alpha if self.rule == "ucb" else 0.0
            zoo.linear.choose_optimistic(features, self._inverse, self._response, alpha, action)
        if self._exploration and draws is not None:
            self._explore(draws[:, -2:], features.shape[1], action)
        return action

    def _explore(self, draws: Array, candidates: int, action: Array) -> None:
        """Replaces some actions by uniform ones; two normals per replicate decide."""
        t = self._rounds + 1
        uniform = portable.each(kernels.elementary.normal_cdf, draws)
        forced = uniform[:, 0] < min(1.0, self._exploration * portable.log(t) / t)
        drawn = np.minimum((candidates * uniform[:, 1]).astype(np.int64), candidates - 1)
        action[forced] = drawn[forced]

    def _features(self, context: Context) -> Array:
        """The candidates' features, with the constant one if there is an intercept."""
        features = context.features
        if self.intercept == 0.0:
            return features
        shape = (*features.shape[:2], self._dim)
        if self._stretched is None or self._stretched.shape != shape:
            self._stretched = np.empty(shape)
        zoo.linear.append_constant(features, self.intercept, self._stretched)
        return self._stretched

    def _admitted(self, context: Context, feedback: Feedback) -> Array:
        """Which replicates' rounds enter the statistics, ``(B,)``."""
        return self._all if feedback.observed is None else feedback.observed

    def _add(self, values: Array, context: Context) -> None:
        """Hands the centred rewards of this round to the releaser."""
        self.releaser.add(values, self._chosen)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        admitted = self._admitted(context, feedback)
        features = self._features(context)
        bad = kernels.recommendation.take(features, action, admitted, self._chosen)
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{features.shape[1] - 1}"
            )
        self._add(feedback.reward - self._shift, context)
        if self.rule == "ts":
            kernels.linalg.cholesky_update(self._factor, self._chosen, self._ones)
        else:
            kernels.linalg.sherman_morrison(self._inverse, self._chosen, self._ones, self._growth)
        self._rounds += 1
        if self._rounds % self._interval == 0:
            self._response = self.releaser.release()
