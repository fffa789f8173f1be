"""Linear policies on a public Gram matrix and released reward sums."""

from __future__ import annotations

import math

import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.agent import Agent, register_agent
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import (
    Budget,
    Composition,
    ExactSum,
    GaussianSum,
    Guarantee,
    Ledger,
    NoiseSource,
    Segment,
    calibrate,
)
from dpb_gym.privacy import Release as GaussianRelease
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

RULES = ("greedy", "ucb", "ts")
SUPPORTS = ["recommendation"]


@register_agent("lin-greedy", supports=SUPPORTS, rule="greedy", centre=True)
@register_agent("lin-ucb", supports=SUPPORTS, rule="ucb")
@register_agent("lin-ts", supports=SUPPORTS, rule="ts")
@register_agent("adaprivate-ucb", supports=SUPPORTS, budget="required", rule="ucb", batch=300)
@register_agent("adaprivate-ts", supports=SUPPORTS, budget="required", rule="ts", batch=300)
class LinearPolicy(Agent):
    """Ridge regression on rewards: greedy, LinUCB or Thompson sampling, private or not.

    The policy keeps A = ridge I + sum x x' over the recommended candidates' features, which
    are public, and sees the rewards only through releases of b = sum r x. It plays
    the largest <x, theta> (``greedy``), <x, theta> + alpha ||x||_{A^-1} (``ucb``), both with
    theta = A^-1 b, or <x, theta> for a draw theta ~ N(A^-1 b, v^2 A^-1) (``ts``).

    Without a budget b is exact: with ``batch=1`` these are LinUCB (Li et al. 2010) and
    linear Thompson sampling (Agrawal & Goyal 2013). With a budget b grows by the noisy sum
    of one batch at a time: AdaPrivate-TS (RU, Algorithm 1) and its UCB twin. Every reward
    is in one batch, so the batches compose in parallel; the last, partial batch is never
    used. sigma is 1 / sqrt(2 rho) for a zCDP budget and that of the exact Gaussian
    mechanism for an (epsilon, delta) budget, which is below the paper's Eq. 2.8 (erratum
    R1). The noise of the batches adds up in b (erratum R5).

    Protected is the **reward** of one round, against whoever sees all recommendations; the
    contexts, which items were recommended, and in rejection replay which rounds were
    accepted, count as public and are **not** protected (erratum R15).

    Args:
        rule: ``"greedy"``, ``"ucb"`` or ``"ts"``.
        alpha: Width of the bonus of ``ucb``, >= 0.
        v: Width of the draw of ``ts``, >= 0.
        ridge: lambda, > 0.
        batch: Rounds between releases of b; where only one in n_candidates rounds is
            observed (rejection replay), n_candidates times as many.
        centre: Subtract the middle of the reward's range. The features have no
            intercept, so this removes a large bias at no cost in privacy (erratum R9).
            The papers' agents do not; ``lin-greedy`` does, because without exploration
            the bias can keep it on a wrong candidate for ever.

    Attributes:
        ledger: What was released, None without a budget.
        releaser: Takes the raw rewards; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not
            bounded.
    """

    def __init__(
        self,
        rule: str = "ucb",
        alpha: float = 1.0,
        v: float = 1.0,
        ridge: float = 1.0,
        batch: int = 1,
        centre: bool = False,
    ) -> None:
        self.rule = validation.choice("rule", rule, RULES)
        self.alpha = validation.real("alpha", alpha, 0.0)
        self.v = validation.real("v", v, 0.0)
        self.ridge = validation.real("ridge", ridge, 0.0, open_low=True)
        self.batch = validation.integer("batch", batch, 1)
        self.centre = validation.flag("centre", centre)
        self.ledger: Ledger | None = None
        self.releaser: ExactSum | GaussianSum

    def begin(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None = None
    ) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"{type(self).__name__} plays recommendation, not {problem.kind}")
        B, d = streams.replicates, problem.dim
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        self._shift = 0.5 * (low + high) if self.centre else 0.0
        self._interval = self.batch
        if problem.partial_feedback:
            assert problem.n_candidates is not None
            self._interval *= problem.n_candidates
        bound = Segment(low - self._shift, high - self._shift)
        self._attach_releaser(problem, streams, budget, bound)
        self._rounds = 0
        self._response = np.zeros((B, d))
        self._chosen = np.empty((B, d))
        self._ones = np.ones(B)
        self._all = np.ones(B, bool)
        self._growth = np.empty(B)
        identity = np.broadcast_to(np.eye(d), (B, d, d))
        if self.rule == "ts":
            self._factor = identity * math.sqrt(self.ridge)
            self._normals = streams.normals(d)
        else:
            self._inverse = identity / self.ridge

    def _attach_releaser(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None, bound: Segment
    ) -> None:
        B, d = streams.replicates, problem.dim
        self.guarantee, self.ledger = None, None
        if budget is None:
            self.releaser = ExactSum(d, B, clip=bound, horizon=problem.horizon, what="reward sum")
            return
        self.ledger = Ledger(budget, notion="central", unit="reward")
        (sigma,) = calibrate(budget, GaussianRelease(bound.sensitivity()))
        self.releaser = GaussianSum(
            d,
            B,
            clip=bound,
            sigma=sigma,
            noise=NoiseSource(streams.noise),
            ledger=self.ledger,
            horizon=problem.horizon,
            cumulative=True,
            what="reward sum of a batch",
        )
        curve = Composition(parallel=((self.releaser.event,),))
        self.guarantee = Guarantee("central", "reward", "replace-one", curve)

    @property
    def clipped_count(self) -> Array:
        """Rewards outside their declared range so far, ``(B,)``."""
        return self.releaser.clipped_count

    def act(self, context: Context) -> Array:
        action = np.empty(len(self._response), np.int64)
        choices = kernels.linear_bandit
        if self.rule == "ts":
            choices.choose_sampled(
                context.features,
                self._factor,
                self._response,
                self.v,
                self._normals.next(),
                action,
            )
        else:
            alpha = self.alpha if self.rule == "ucb" else 0.0
            choices.choose_optimistic(
                context.features, self._inverse, self._response, alpha, action
            )
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        bad = kernels.linear_bandit.take(context.features, action, observed, self._chosen)
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{context.features.shape[1] - 1}"
            )
        self.releaser.add(feedback.reward - self._shift, self._chosen)
        if self.rule == "ts":
            kernels.linalg.cholesky_update(self._factor, self._chosen, self._ones)
        else:
            kernels.linalg.sherman_morrison(self._inverse, self._chosen, self._ones, self._growth)
        self._rounds += 1
        if self._rounds % self._interval == 0:
            self._response = self.releaser.release()
