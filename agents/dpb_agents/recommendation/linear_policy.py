"""Linear policies on a public Gram matrix and released reward sums."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import flag, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import kernels, portable, validation
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import Curator
from dpb_gym.problems.availability import among_available, original_probabilities, stand_ins
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.stretch import Stretch
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

SUPPORTS = ["recommendation"]
# Every tuning grid has eight points, and the defaults are one of them.
WIDTHS = [0.1, 0.3, 1.0, 3.0]
# Stands for the sums where the policy learns of them by releases only.
NO_SUMS = np.empty((0, 0)), 0.0, 0.0, np.empty(0, np.int64)
CENTRED = {"centre": [False, True]}
central = partial(
    register_agent, supports=SUPPORTS, protects=("central", "reward"), budget="required"
)


def take_recommended(features: Array, action: Array, observed: Array, out: Array) -> Array:
    """Write w x of the recommended candidate to `out`, 0 where nothing was observed.

    Returns:
        w = 1 / max(1, ||x||), ``(B,)``, which scales x into the unit ball. Exact sums multiply r by
        w as well, which leaves a linear model unchanged. Noisy sums use r itself, as in the papers,
        which costs less than a weaker signal.

    Raises:
        ActionError: If a candidate does not exist.
    """
    weight = np.ones(len(action))
    bad = kernels.regression_records.take(features, action, observed, out, weight)
    if bad:
        raise ActionError(
            f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
            f"0..{features.shape[1] - 1}"
        )
    return weight


def shifted_inverse(
    noisy: Array, shift: float, inverse: Array, theta: Array, logdet: Array
) -> None:
    """Call the kernel of this name, and raise eigenvalues of V below half the shift to that."""
    agent_kernels.linear.shifted_inverse(noisy, shift, inverse, theta, logdet)
    for b in np.flatnonzero(np.isnan(logdet)):
        values, vectors = kernels.linalg.eigh(noisy[None, b, :-1, :-1])
        values = np.maximum(values + shift, 0.5 * shift)
        inverse[b] = kernels.linalg.compose(1.0 / values, vectors)[0]
        kernels.linalg.multiply_one(inverse[b], noisy[b, :-1, -1].copy(), theta[b])
        logdet[b] = portable.each(portable.log, values).sum()


class LinearPolicy(WarmStart):
    """Ridge regression on rewards: A = ridge I + sum x x', b = ridge m + sum r x, m the prior mean.

    With a prior of precision P (`ProblemInfo.prior`), A = ridge I + s^2 P + sum x x' and
    b = (ridge I + s^2 P) m + sum r x, with s half the rewards' range: the prior counts like earlier
    records.

    A is a sum over the recommended candidates' features, which are public. Rewards are read only
    through releases of b. `LinUCB` and `LinTS` define the choice, the AdaPrivate family the noise.

    Args:
        ridge: lambda, > 0.
        batch: Rounds between releases of b; where only one in n_candidates rounds is
            observed (rejection replay), n_candidates times as many.
        centre: Subtract the middle of the reward's range. The features have no
            intercept, so this removes a large bias at no cost in privacy (erratum R9).
            The papers' agents do not. ``lin-greedy`` does, because without exploration
            the bias can fix it on a wrong candidate.
        intercept: Value of a constant feature for the rewards' level; 0 for none. Features and
            constant together are scaled into the unit ball, so private sums have the same
            sensitivity, and their noise grows by ``sqrt(1 + intercept^2)``.
        gamma: Forced exploration (RU, section 6.2): a uniformly random candidate with probability
            ``min(1, d log(t) / (gamma t))`` in round t, > 0; RU take d, hence about
            ``log(T)^2 / 2`` random rounds. It uses no data, so it costs no privacy.
            None: no forced exploration.
        window: Rounds in A and b, at least 2 `batch`: every half window they drop records that are
            older than half a window (for drift). None: all rounds.

    Attributes:
        tuning_grid: Parameters worth tuning, per registered name.
        releaser: Receives the raw rewards; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not
            bounded.
    """

    ridge: float = positive(1.0)
    batch: int = integer(1, 1)
    centre: bool = flag(False)
    intercept: float = real(0.0, 0.0)
    gamma: float | None = positive(None)
    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            self.window = validation.integer("window", self.window, 2 * self.batch)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"{type(self).__name__} plays recommendation, not {problem.kind}")
        B, d = streams.replicates, problem.dim + (self.intercept > 0.0)
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        self._shift = 0.5 * (low + high) if self.centre else 0.0
        self._noisy = curator.private
        self._interval = self.batch
        if problem.partial_feedback:
            assert problem.n_candidates is not None
            self._interval *= problem.n_candidates
        reward = (low - self._shift, high - self._shift)
        self.releaser: Any = self._sums(problem, curator, d, reward)
        self._exploration = 0.0 if self.gamma is None else problem.dim / self.gamma
        if self._exploration:
            self._coins = streams.uniforms(2)
        self.stretches = not self._exploration and self.window is None
        self._rounds = 0
        # prior mean and ridge in units of the scaled features
        known, stretch = self.prior(problem), 1.0 + self.intercept**2
        pull = known.centre * (self.ridge / math.sqrt(stretch))
        gram = np.eye(d) * (self.ridge / stretch)
        information = known.information((0.5 * (high - low)) ** 2)
        if information is not None:
            gram[: problem.dim, : problem.dim] += information / stretch
            pulled = np.empty((1, problem.dim))
            kernels.linalg.multiply(information[None], known.centre[None], pulled)
            pull += pulled[0] / math.sqrt(stretch)
        self._pull = np.append(pull, np.zeros(d - problem.dim))
        self._response = np.tile(self._pull, (B, 1))
        self._chosen = np.empty((B, d))
        self._stretched: Array | None = None
        self._ones, self._all = np.ones(B), np.ones(B, bool)
        self._start(gram, B, streams)
        if self.window is not None:
            stretch = self._interval // self.batch
            half = self.window * stretch // 2 // self._interval * self._interval
            self._half, self._least, self._block = half, gram, np.zeros((B, d, d))

    def _sums(
        self, problem: ProblemInfo, curator: Curator, width: int, reward: tuple[float, float]
    ) -> Any:
        """Make the releaser of the sums of rewards in `reward` times features."""
        return curator.batch_sum(width, reward=reward, cumulative=True)

    @abstractmethod
    def _start(self, gram: Array, replicates: int, streams: AgentStreams) -> None:
        """Initialise A = `gram`, ``(d, d)``, in every replicate."""

    @abstractmethod
    def _restart(self, grams: Array) -> None:
        """Replace A by `grams`, ``(B, d, d)``."""

    @abstractmethod
    def _choose(self, features: Array, action: Array) -> None:
        """Write the chosen candidates into `action`."""

    @abstractmethod
    def _grow(self) -> None:
        """Add the outer products of ``_chosen`` to A."""

    @among_available
    def act(self, context: Context) -> Array:
        action = np.empty(len(self._response), np.int64)
        features = self._features(context)
        self._choose(features, action)
        if self._exploration:
            uniform, candidates = self._coins.next(), features.shape[1]
            forced = uniform[:, 0] < self._forced()
            drawn = np.minimum((candidates * uniform[:, 1]).astype(np.int64), candidates - 1)
            action[forced] = drawn[forced]
        return action

    def _forced(self) -> float:
        """Return the probability that this round's candidate is uniformly random."""
        t = self._rounds + 1
        return min(1.0, self._exploration * portable.log(t) / t)

    def _features(self, context: Context) -> Array:
        """Return the candidates' features, with the constant one if there is an intercept."""
        features = context.features
        if self.intercept == 0.0:
            return features
        shape = (*features.shape[:-1], self._response.shape[1])
        if self._stretched is None or self._stretched.shape != shape:
            self._stretched = np.empty(shape)
        rows = features.reshape(-1, *shape[-2:-1], features.shape[-1])
        stretched = self._stretched.reshape(-1, *shape[-2:])
        agent_kernels.linear.append_constant(rows, self.intercept, stretched)
        return self._stretched

    def _admitted(self, context: Context, feedback: Feedback) -> Array:
        """Return which replicates' rounds enter the statistics, ``(B,)``."""
        return self._all if feedback.observed is None else feedback.observed

    def _add(self, reward: Array, context: Context) -> None:
        """Add the centred rewards of this round to the releaser."""
        self.releaser.add(reward, self._chosen)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        admitted = self._admitted(context, feedback)
        features = self._features(context)
        weight = take_recommended(features, action, admitted, self._chosen)
        reward = feedback.reward - self._shift
        self._add(reward if self._noisy else weight * reward, context)
        self._grow()
        self._rounds += 1
        if self._rounds % self._interval == 0:
            self._response = self._pull + self.releaser.release()
        if self.window is not None:
            self._block += self._chosen[:, :, None] * self._chosen[:, None, :]
            if self._rounds % self._half == 0:
                self._response = self._pull + self.releaser.forget()
                self._restart(self._least + self._block)
                self._block[:] = 0.0

    replaced = ("act", "observe", "_admitted", "_add", "_choose", "_grow", "_forced")

    def _play(self, rounds: Stretch, kernel: Any, state: Array, *draws: Array) -> Array:
        """Play a stretch with a kernel that does `act` and `observe`; release where batches end.

        Args:
            rounds: The stretch.
            kernel: See `kernels.linear.play_optimistic`.
            state: What the policy knows of A, updated in place.
            draws: What its choices need, for every round.
        """
        n, B = rounds.shape
        features, follow = self._features(rounds.context), self._interval == 1 and not self._noisy
        chosen, reward = np.empty((n, B, self._response.shape[1])), np.empty((n, B))
        action, start, sums = np.empty((n, B), np.int64), 0, NO_SUMS
        while start < n:
            left = self._interval - self._rounds % self._interval
            part = slice(start, n if follow else min(n, start + left))
            start = part.stop
            if follow:
                sums = self.releaser.exact_sums(n)
            bad = kernel(
                (features[part], rounds.reward[part], rounds.observed[part]),
                (self._shift, not self._noisy, follow),
                self._response,
                (self._pull, *sums),
                state,
                tuple(numbers[part] for numbers in draws),
                chosen[part],
                reward[part],
                action[part],
            )
            if bad:
                raise ParameterError("records must be finite; got NaN or infinity")
            self._rounds += part.stop - part.start
            if follow:
                continue
            self.releaser.add_rounds(reward[part], chosen[part])
            if self._rounds % self._interval == 0:
                self._response = self._pull + self.releaser.release()
        return action


@register_agent(
    "lin-greedy",
    supports=SUPPORTS,
    summary="Greedy on ridge regression of centred rewards: LinUCB without a bonus.",
    alpha=0.0,
    centre=True,
)
@register_agent("lin-ucb", supports=SUPPORTS)
class LinUCB(LinearPolicy):
    """LinUCB (Li et al. 2010): the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b.

    With alpha = 0 it is greedy. arXiv:1003.0146.

    Args:
        alpha: Width of the bonus, >= 0.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "lin-greedy": {"ridge": [0.3, 1.0, 3.0, 10.0], "intercept": [0.0, 0.5]},
        "lin-ucb": {"alpha": WIDTHS, **CENTRED},
    }

    alpha: float = real(1.0, 0.0)

    def _start(self, gram: Array, replicates: int, streams: AgentStreams) -> None:
        plain = np.eye(len(gram)) / gram[0, 0]
        self._inverse = np.repeat(plain[None], replicates, axis=0)
        if (gram != np.eye(len(gram)) * gram[0, 0]).any():
            self._restart(np.repeat(gram[None], replicates, axis=0))
        self._growth = np.empty(replicates)

    def _choose(self, features: Array, action: Array) -> None:
        agent_kernels.linear.choose_optimistic(
            features, self._inverse, self._response, self.alpha, action
        )

    def _restart(self, grams: Array) -> None:
        kernels.linalg.inverse(grams, self._inverse)

    def probabilities(self, context: Context) -> Array:
        shown, index = stand_ins(context)
        features = self._features(shown)
        best = np.empty(len(features), np.int64)
        self._choose(features, best)
        forced = self._forced()
        shares = np.full(features.shape[:2], forced / features.shape[1])
        shares[np.arange(len(best)), best] += 1.0 - forced
        return original_probabilities(shares, index)

    def _grow(self) -> None:
        kernels.linalg.sherman_morrison(self._inverse, self._chosen, self._ones, self._growth)

    def play(self, rounds: Stretch) -> Array:
        widths = np.full(rounds.shape[0], self.alpha)
        return self._play(rounds, agent_kernels.linear.play_optimistic, self._inverse, widths)


@register_agent("lin-ts", supports=SUPPORTS)
class LinTS(LinearPolicy):
    """Linear Thompson sampling (Agrawal & Goyal 2013): <x, theta> for a draw of theta.

    theta ~ N(A^-1 b, (v decay^(k - 1))^2 A^-1) in batch k. arXiv:1209.3352.

    Args:
        v: Width of the draw, >= 0.
        decay: Factor of the width from batch to batch, in (0, 1].
    """

    tuning_grid: ClassVar[dict[str, Any]] = {"v": WIDTHS, **CENTRED}

    v: float = real(1.0, 0.0)
    decay: float = real(1.0, 0.0, 1.0, open_low=True)

    def _start(self, gram: Array, replicates: int, streams: AgentStreams) -> None:
        self._restart(np.repeat(gram[None], replicates, axis=0))
        self._normals = streams.normals(len(gram))
        self._width = self._first_width(len(gram))

    def _first_width(self, dim: int) -> float:
        """Return the width of the first batch's draws."""
        return self.v

    def _choose(self, features: Array, action: Array) -> None:
        width = self._width_of(self._rounds)
        xi = self._normals.next()
        agent_kernels.linear.choose_sampled(
            features, self._upper, self._response, width, xi, action
        )

    def _width_of(self, rounds: int) -> float:
        """Width of the draw after so many rounds."""
        return self._width * portable.power(self.decay, rounds // self._interval)

    def play(self, rounds: Stretch) -> Array:
        n = rounds.shape[0]
        widths = np.array([self._width_of(self._rounds + i) for i in range(n)])
        kernel, normals = agent_kernels.linear.play_sampled, self._normals.take(n)
        return self._play(rounds, kernel, self._upper, widths, normals)

    def _grow(self) -> None:
        kernels.linalg.cholesky_update(self._upper, self._chosen, self._ones)

    def _restart(self, grams: Array) -> None:
        lower = np.empty_like(grams)
        kernels.linalg.cholesky(grams, lower)
        self._upper = np.ascontiguousarray(lower.transpose(0, 2, 1))
