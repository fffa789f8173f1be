"""One-pass private least squares for sparse parameters in many dimensions."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import portable, validation
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import Curator, Releaser, ZCDPEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

OCTAVES = 8  # sizes of errors that are counted apart, in halvings of half the reward's range
SHARES = 0.05, 0.475  # of the counts and of the selection in a batch's budget
SUPPORTS = ["recommendation"]


class SparseRelease(NamedTuple):
    """The release of a batch.

    Attributes:
        counts: Noisy numbers of errors per octave, ``(B, OCTAVES)``.
        counts_std: Standard deviation of their noise.
        before: Support before the selection, ``(B, n)`` bool.
        order: Selected coordinates, in order, ``(B, picks)``; -1 for none.
        xi: Scale of the noise of the selection.
        support: Support with the selected coordinates, ``(B, n)`` bool.
        values: Noisy sums on the support, ``(B, n)``; 0 elsewhere, or everywhere if not released.
        values_std: Standard deviation of their noise, ``(B,)``; 0 if not released.
    """

    counts: Array
    counts_std: float
    before: Array
    order: Array
    xi: float
    support: Array
    values: Array
    values_std: Array


def check_shares(what: str, shares: tuple[float, float], picks: int) -> None:
    """Raise ParameterError unless the parts of a release spend no more than its whole."""
    first, second = shares
    # negated, so that NaN is refused
    if not (first > 0.0 and second >= 0.0 and first + second <= 1.0 + 1e-12):
        raise ParameterError(f"{what}: shares must be positive and at most 1 in all, got {shares}")
    if picks and second == 0.0:
        raise ParameterError(f"{what}: a selection needs a share, got {shares}")


class SparseSums(Releaser):
    """Sums of a few selected coordinates of records y v, and counts of their errors by size.

    Neighbours differ in one record (**replace-one**). A record is an error e and a direction v. y
    is e / scale clipped to [-1, 1], and v is clipped to the unit ball and the cube [-m, m]^n, both
    by the releaser. A batch spends rho on three releases of its own records:

    - counts of |e| by octave, Gaussian: two counts move by 1, sigma = 1 / sqrt(rho_1);
    - `picks` coordinates of the largest |sum| + xi Gumbel. A coordinate moves by at most 2 m, so
      these are exponential mechanisms of zCDP (2 m / xi)^2 / 2 each (see `Peeling` of fliphat),
      xi = 2 m sqrt(picks / (2 rho_2));
    - the sums of the k coordinates of the support, Gaussian: ||y v_S|| <= min(1, m sqrt(k)), so
      sigma = 2 min(1, m sqrt(k)) / sqrt(2 rho_3).

    rho_1 + rho_2 + rho_3 = rho. A record is in one batch, so all batches together cost as much as
    one. System noise is continuous, in double precision.

    Args:
        curator: Provides budget and noise.
        width: n.
        bound: m, at most 1.

    Attributes:
        kept: The newest release; None before the first.
    """

    kept: SparseRelease | None = None

    def __init__(self, curator: Curator, width: int, bound: float) -> None:
        self.width = width
        self.bound = validation.real("bound", bound, 0.0, 1.0, open_low=True)
        self._sums = np.zeros((curator.replicates, width))
        self._counts = np.zeros((curator.replicates, OCTAVES))
        super().__init__(curator, share=None, what="sums of selected coordinates")

    def cost(self, rho: float) -> ZCDPEvent:
        return ZCDPEvent(rho)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._noise, self._sigma = noise, 0.0 if rho is None else 1.0 / math.sqrt(rho)

    def add(self, errors: Array, scale: Array, directions: Array) -> None:
        """Add one record per replicate: e ``(B,)``, its scale ``(B,)`` and v, 0 for no record.

        Raises:
            ParameterError: If a number is not finite; nothing changes.
        """
        if not (np.isfinite(directions).all() and np.isfinite(errors).all()):
            raise ParameterError("features and rewards must be finite, got NaN or infinity")
        self.ready()
        sums = self._sums, self._counts
        agent_kernels.peeling.add(errors, scale, directions, self.bound, *sums)

    def release(self, support: Array, picks: int, shares: tuple[float, float]) -> SparseRelease:
        """End the batch and discard its records.

        Args:
            support: Coordinates to release besides the new ones, ``(B, n)`` bool, public.
            picks: Number of new coordinates, public.
            shares: Parts of rho for the counts and for the selection, public; the rest is for the
                values, which are not released if the parts add up to 1.

        Raises:
            ParameterError: If a part is not positive, or they add up to more than 1; nothing is
                released.
        """
        self.ready()
        check_shares(self.what, shares, picks)
        B, sigma, (first, second) = self.replicates, self._sigma, shares
        after = support.copy()
        order = np.empty((B, picks), np.int64)
        xi = 0.0
        counts_std = sigma / math.sqrt(first)
        counts = self._counts + counts_std * self._noise.normal(OCTAVES)
        if picks:
            # `picks` exponential mechanisms, at a sensitivity of 2 m per coordinate.
            xi = 2.0 * self.bound * sigma * math.sqrt(0.5 * picks / second)
            gumbels = self._noise.gumbel((self.width,)) if xi else np.zeros((B, self.width))
            agent_kernels.peeling.select(self._sums, xi, gumbels, after, order)
        values = np.zeros((B, self.width))
        values_std = np.zeros(B)
        third = 1.0 - first - second
        if third > 0.0:
            # y v is in the ball and in the cube, so the smaller of both bounds holds.
            longest = np.minimum(1.0, self.bound * np.sqrt(after.sum(axis=1)))
            values_std = 2.0 * longest * sigma * math.sqrt(0.5 / third)
            noise = self._noise.normal(self.width)
            values = np.where(after, self._sums + values_std[:, None] * noise, 0.0)
        # The records are discarded, so that batches compose in parallel.
        self._sums[:] = self._counts[:] = 0.0
        chosen = support, order, xi, after
        kept = self.kept = SparseRelease(counts, counts_std, *chosen, values, values_std)
        return kept

    def log_density(self, kept: SparseRelease) -> Array:
        """Return the log-density of a release given the open batch, up to a constant."""
        away = (kept.counts - self._counts) / kept.counts_std
        out: Array = -0.5 * (away**2).sum(axis=1)
        if kept.order.shape[1]:
            agent_kernels.peeling.log_density(self._sums, kept.xi, kept.before, kept.order, out)
        released = kept.support & (kept.values_std > 0.0)[:, None]
        std = np.where(kept.values_std > 0.0, kept.values_std, 1.0)
        away = (kept.values - np.where(released, self._sums, kept.values)) / std[:, None]
        return out - 0.5 * (away**2).sum(axis=1)


@register_agent("one-pass-sparse", supports=SUPPORTS, protects=("central", "reward"))
@register_agent(
    "one-pass-sparse-joint",
    supports=SUPPORTS,
    protects=("joint", "user-round"),
    summary="One-pass private least squares for a sparse theta; contexts are private as well.",
)
class OnePassSparse(WarmStart):
    """One-pass private least squares for a sparse theta among many coordinates.

    The model is r = c + <v, theta> + noise for the unit direction v of the chosen candidate with a
    constant feature. theta is 0 except for a few coordinates, its **support**. Batches of rounds
    grow by a factor. A round's record is y v, y the error of the newest theta in units of a scale,
    clipped to [-1, 1]. At the end of a batch (see `SparseSums`)

    1. the counts of errors give the next scale, about the median of |r - c - <v, theta>|;
    2. the coordinates of largest sums join the support, by noisy selection;
    3. the sums on the support move theta there. Coordinates of theta that are not significant
       leave the support.

    Both noises are of the size of few coordinates, so the regret depends on the dimension by its
    logarithm. The first batch is for the scale alone, and candidates are random until the second
    ends. Directions are taken as isotropic (docs/agents/one-pass-sparse.md).

    The guarantee is for a whole record, features and reward, replace-one. It is registered as joint
    privacy of a user-round and, with public contexts, as central privacy of a reward.

    Args:
        prior_mean: See `WarmStart`; theta - `prior_mean` is sparse. Meant for features of norm 1.
        picks: Coordinates that may join the support after a batch.
        spread: Bound of a coordinate of v in units of 1 / sqrt(d), > 0.
        start: Records of the first batch, in units of the counts' noise or of 1. 0: no such batch,
            for rewards at the ends of their range.
        first: Factor of the rounds after which the first coordinates are selected, > 0.
        ratio: Factor between the rounds of two releases, > 1.
        threshold: Coordinates stay in the support beyond so many standard deviations, >= 0.

    Attributes:
        theta: Estimate of the slopes and the level, in units of half the reward's range,
            ``(B, d + 1)``.
        releaser: Receives the raw records; the policy reads its releases only.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "picks": [2, 4],
        "first": [2.5, 3.5],
        "ratio": [1.5, 2.0],
    }
    # the target is in the first batch, of which the sums of all coordinates are released, unclipped
    audit_params: ClassVar[dict[str, Any]] = {"start": 0.0, "first": 0.42, "spread": 2.5}

    picks: int = integer(4, 1)
    spread: float = positive(1.0)
    start: float = real(16.0, 0.0)
    first: float = positive(3.5)
    ratio: float = real(2.0, 1.0, open_low=True)
    threshold: float = real(2.0, 0.0)
    releaser: SparseSums = field(init=False, repr=False)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"one-pass-sparse plays recommendation, not {problem.kind}")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        B = streams.replicates
        d = problem.dim
        n = d + 1
        self._middle, self._half = 0.5 * (low + high), 0.5 * (high - low)
        self._centre = self.prior(problem).centre / self._half
        # the constant feature of a record is as large as the largest of the others
        self._constant = self.spread / math.sqrt(d)
        bound = self._constant / math.sqrt(1.0 + self._constant**2)
        self.releaser = SparseSums(curator, n, bound)
        # expected square of a direction's coordinates
        self._square = np.full(n, 1.0 / (d + self.spread**2))
        self._square[d] = bound**2
        self.theta = np.zeros((B, n))
        self._support = np.zeros((B, n), bool)
        self._support[:, d] = True
        self._precision, self._weighted = np.zeros((B, n)), np.zeros((B, n))
        self._scale, self._octave = np.ones(B), np.zeros(B, np.int64)
        # theta of the last batch, its steps and their variances
        self._last = np.zeros((B, n)), np.zeros((B, n)), np.zeros((B, n))
        self._steepness = np.ones(B)
        self._coins = streams.uniforms(1)
        self._rate = 1.0 / (problem.n_candidates or 1) if problem.partial_feedback else 1.0
        self._rounds = self._begun = self._batches = 0
        self._end: int | None = None
        self._regressors, self._directions = np.zeros((B, n + d)), np.zeros((B, n))
        self._moments, self._all = np.zeros((B, d + 3)), np.ones(B, bool)
        self._greedy = np.zeros((B, d, d)), np.zeros(B), np.zeros((B, d))

    @among_available
    def act(self, context: Context) -> Array:
        B, m, _ = context.features.shape
        uniform = self._coins.next()[:, 0]
        action = np.empty(B, np.int64)
        # theta is 0 until the second release, so that no candidate is better.
        if self._batches < 2 and not self._centre.any():
            return np.minimum((m * uniform).astype(np.int64), m - 1)
        slopes = self.theta[:, :-1] + self._centre
        agent_kernels.linear_records.best_candidates(
            context.features, slopes, *self._greedy, action
        )
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        bad = agent_kernels.linear_records.directions(
            context.features,
            action,
            observed,
            True,
            self._constant,
            self._regressors,
            self._directions,
            self._moments,
        )
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{context.features.shape[1] - 1}"
            )
        expected = np.empty(len(action))
        agent_kernels.peeling.predict(
            context.features, action, self._centre, self.theta, self._directions, expected
        )
        reward = np.clip((feedback.reward - self._middle) / self._half, -1.0, 1.0)
        self.releaser.add(reward - expected, self._scale, self._directions)
        self._rounds += 1
        if self._end is None:
            self._plan()
        if self._rounds == self._end:
            self._update()

    def _plan(self) -> None:
        """Set the first two releases.

        By the second, a coordinate of an even share of the support exceeds the noise of all d.
        """
        rho = self.releaser.rho
        d = self.theta.shape[1] - 1
        noise = 0.0 if rho is None else 1.0 / math.sqrt(rho)
        alone = math.ceil(self.start * max(1.0, noise) / self._rate)
        # The largest of d Gumbel draws is about log d, and `picks` coordinates share the budget.
        width = self.picks * (portable.log(d) + 2.0)
        wait = self.first * width * (1.0 + math.sqrt(0.5) * self.spread * noise)
        self._second = alone + math.ceil(wait / self._rate)
        self._batches, self._end = (0, alone) if alone else (1, self._second)

    def _update(self) -> None:
        """Update scale, support and theta with the batch that ends."""
        rounds = self._rate * (self._rounds - self._begun)
        self._begun, scale = self._rounds, self._scale
        learns = self._batches > 0
        picks, shares = (self.picks, SHARES) if learns else (0, (1.0, 0.0))
        batch = self.releaser.release(self._support, picks, shares)
        within = self._rescale(batch, rounds)
        if learns:
            self._learn(batch, rounds, within / scale)
        self._batches += 1
        self._end = math.ceil(self.ratio * self._rounds) if learns else self._second

    def _rescale(self, batch: SparseRelease, rounds: float) -> Array:
        """Set the scale of the next batch and return the share of errors within the old one.

        The scale is the smallest octave that surely has two fifths of the errors. After the first
        batch it falls by at most one octave per batch.
        """
        # Octaves before k count the errors above 2^-k, and each of these counts has noise.
        within = 1.0 - (np.cumsum(batch.counts, axis=1) - batch.counts) / rounds
        doubt = batch.counts_std / rounds * np.sqrt(np.arange(OCTAVES))
        # Up to the first octave that is not sure: noise may make a later one look so.
        sure = np.logical_and.accumulate(within - doubt >= 0.4, axis=1).sum(axis=1) - 1
        old = self._octave
        self._octave = np.clip(sure, 0, old + 1 if self._batches else OCTAVES - 1)
        self._scale = np.ldexp(1.0, -self._octave)
        # Sums are divided by the gain: a share near 0 would make the step arbitrarily large.
        return np.clip(within[np.arange(len(old)), old], 0.3, 1.0)

    def _steepen(self, theta: Array, step: Array, variance: Array) -> None:
        """Raise the curvature to that along the last move of theta, if it is surely larger.

        For isotropic directions `step` is theta's error plus noise, which falls by theta's move. By
        how much more it fell is the curvature along the move. Without it estimates would oscillate
        where directions are correlated.
        """
        last, before, spread = self._last
        self._last = theta, step, variance
        move = np.where((spread > 0.0) & (variance > 0.0), theta - last, 0.0)
        size = np.maximum((move**2).sum(axis=1), 1e-300)
        fall = ((before - step) * move).sum(axis=1)
        doubt = np.sqrt(((spread + variance) * move**2).sum(axis=1))
        self._steepness = np.maximum(self._steepness, (fall - doubt) / size)

    def _learn(self, batch: SparseRelease, rounds: float, slope: Array) -> None:
        """Update theta and its support with the sums of a batch.

        Args:
            batch: The release.
            rounds: Records of the batch.
            slope: Of the expected y as a function of the error's mean, ``(B,)``.
        """
        d = self.theta.shape[1] - 1
        support = batch.support
        # A sum moves by `gain` per unit of theta's error. As |y| <= 1, y v_j has a variance of at
        # most v_j^2.
        gain = slope[:, None] * rounds * self._square
        noise = batch.values_std[:, None] ** 2 + rounds * self._square
        self._steepen(self.theta, batch.values / gain, np.where(support, noise / gain**2, 0.0))
        gain *= self._steepness[:, None]
        self._precision += np.where(support, gain**2 / noise, 0.0)
        # With gain theta added every batch measures theta* itself, so that batches can be averaged.
        step = gain / noise * (batch.values + gain * self.theta)
        self._weighted += np.where(support, step, 0.0)
        variance = 1.0 / np.where(support, self._precision, 1.0)
        mean = self._weighted * variance
        support = support & (mean**2 > self.threshold**2 * variance)
        # The level stays: it is no sparse coordinate.
        support[:, d] = True
        self._support = support
        # A coordinate that returns is estimated from later batches only.
        self._precision[~support] = self._weighted[~support] = 0.0
        # the slopes' prior variance is their mean square less that of the noise
        slopes = support[:, :d]
        excess = np.where(slopes, mean[:, :d] ** 2 - variance[:, :d], 0.0).sum(axis=1)
        prior = np.maximum(0.0, excess / np.maximum(1, slopes.sum(axis=1)))[:, None]
        self.theta = np.where(support, mean, 0.0)
        self.theta[:, :d] *= prior / (prior + variance[:, :d])
