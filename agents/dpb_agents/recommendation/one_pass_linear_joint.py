"""One-pass private least squares for recommendation with private contexts.

A row consists of the isometric half of v v', times w_H, and of v times w_u and the reward, scaled
to [-1/2, 1/2]. v is a unit vector of the chosen candidate and a constant, see `direction` of
one-pass-linear. theta is the posterior mean given the best combination of the releases, with the
curvature shrunk by its known noise.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.kernels.curvature import Combination, History, combination, estimate, store
from dpb_agents.recommendation.one_pass_linear import (
    FUNCTIONS,
    contrast,
    direction,
    linear_plan,
    linear_start,
    planned,
    regressor,
    release_model,
    theta_prior,
)
from dpb_gym.agent import unsuitable
from dpb_gym.errors import AgentError
from dpb_gym.kernels.customer_candidates import best_candidate, shared_part
from dpb_gym.kernels.vectors import definite, eigh, log, matmul, power, solved, squared_norm
from dpb_gym.parameters import choice, flag, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.play.player import Player
from dpb_gym.privacy import ContributionCap
from dpb_gym.problems.base import Array, Context, Feedback
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

ROOT2 = math.sqrt(2.0)
SHARE = 0.02  # of the squared distance of two rows, for lengths
KNOWN = 0.14  # standard deviation of log2 of a length that is used: a tenth of the length
OCTAVES = 16.0  # lengths from 2^-8 to 2^8 differ in a row
LN2 = 0.6931471805599453


class Known(NamedTuple):
    """Public constants.

    Attributes:
        middle: Middle of the rewards' range.
        width: Its width.
        intercept: Value b of the constant feature in v.
        w_H: Weight of the half of v v'.
        w_u: Weight of the response.
        w_l: Weight of the mean log length; 0 if no length is learnt.
        bent: Mean square of a coordinate of the noise of H, in units of w_H, times t.
        scale: theta = t / scale, ``(n,)``.
        centre: Prior mean of t, ``(n,)``.
        prior: Its prior covariance, ``(n, n)``.
        sums: How releases are combined.
    """

    middle: float
    width: float
    intercept: float
    w_H: float
    w_u: float
    w_l: float
    bent: float
    scale: Any
    centre: Any
    prior: Any
    sums: Combination


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Posterior mean of slopes and level, ``(n,)``.
        length: Typical length of a candidate without what its round's candidates share; 0 where
            it is not known, ``(1,)``.
        sums: Stored releases, see `History`.
        ends: Their rounds.
        count: Their number.
    """

    theta: Any
    length: Any
    sums: Any
    ends: Any
    count: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta>."""
    return best_candidate(x, s.theta[: x.shape[1]], 0.0)


@jit
def record(c, s, t, x, k, reward, z):
    """Row of a round: half of v v', the response times v, and the mean log length.

    With z and v = [z / |z|; b] / sqrt(1 + b^2), the length l is that of z relative to the round's
    candidates, or to `State.length`. The slopes of v are multiplied by min(1, l) and the response
    is divided by max(1, l). Two rows differ by at most as much as for l = 1. The new v has
    |v| <= 1, and the new response stays in [-1/2, 1/2]. For rows of v, v' with g = <v, v'>, and
    responses r, r', the squared distance is, with the squares h, u of the weights,

        h (|v|^4 + |v'|^4 - 2 g^2) + u (r^2 |v|^2 + r'^2 |v'|^2 - 2 r r' g).

    Given g, it increases in |v| and |v'|. So it is at most that of the unit vectors that extend v
    and v' by a coordinate each, which have the same g. The last entry adds at most w_l^2.
    """
    m, d = x.shape
    n = d + 1
    half = n * (n + 1) // 2
    row = np.zeros(half + n + (1 if c.w_l > 0.0 else 0))
    phi, together, alone = regressor(c, x, k)
    kappa = shared_part(m, d, alone, together)
    own = contrast(phi, kappa)
    v = direction(c, own)
    response = max(-0.5, min(0.5, (reward - c.middle) / c.width))
    if v[d] != 0.0:
        square = squared_norm(own)
        if s.length[0] > 0.0:
            relative = math.sqrt(square) / s.length[0]
        else:
            # The mean over candidates of |x_k - kappa xbar|^2, whatever the unit of x.
            relative = math.sqrt(square / (alone - (2.0 - kappa) * kappa * together))
            if c.w_l > 0.0:
                row[half + n] = c.w_l * mean_octave(x, phi, kappa)
        for j in range(d):
            v[j] *= min(1.0, relative)
        # A longer x has a larger mean reward: divided, both belong to a vector of length 1.
        response /= max(1.0, relative)
    column = 0
    for j in range(n):
        weighted = c.w_H * v[j]
        row[column] = weighted * v[j]
        for o in range(j + 1, n):
            row[column + o - j] = ROOT2 * weighted * v[o]
        column += n - j
        row[half + j] = c.w_u * response * v[j]
    return row


@jit
def mean_octave(x, phi, kappa):
    """Mean over candidates of log2 |x_k - kappa xbar| / `OCTAVES`, each cut to [-1/2, 1/2]."""
    m, d = x.shape
    total = 0.0
    for k in range(m):
        square = 0.0
        for j in range(d):
            square += (x[k, j] - kappa * phi[d + 1 + j]) ** 2
        octave = 0.5 * log(square) / (LN2 * OCTAVES) if square > 0.0 else -0.5
        total += max(-0.5, min(0.5, octave))
    return total / m


@jit
def learn(c, s, released, t):
    """Update theta and the typical length with all releases."""
    n = s.theta.shape[0]
    half = n * (n + 1) // 2
    history = History(s.sums, s.ends, s.count)
    store(c.sums, history, released, t)
    sums, std, uneven = estimate(c.sums, history, released, 0)
    recorded = released.records
    if c.w_l > 0.0:
        learn_length(c, s, sums[half + n] / c.w_l, std / c.w_l, recorded)
    b = c.intercept
    noise = std / c.w_H
    # a floor for exact sums keeps the matrices invertible
    floor = max((std / c.w_u) ** 2, 1e-6 * t)
    # The trace of the slopes' block is a share of the largest, taken as uniform in [0, 1], of
    # mean 1/2 and variance 1/12. The half's rows have n, n - 1, ... entries.
    most = max(recorded, 1e-9) / (1.0 + b * b)
    trace = 0.0
    H = np.zeros(half)
    u = np.zeros(n)
    for i in range(half):
        H[i] = sums[i] / c.w_H
    for i in range(n):
        u[i] = sums[half + i] / c.w_u
    for j in range(n - 1):
        trace += H[j * n - j * (j - 1) // 2]
    spread = 1.0 + 12.0 * (n - 1) * (noise / most) ** 2
    share = min(max(0.5 + (trace / most - 0.5) / spread, 1e-3), 1.0)
    # as of unit vectors with this trace and the level, which is known
    number = recorded - (1.0 - share) * most
    constant = b / math.sqrt(share)
    mean = joint_posterior(
        H, u, number, noise, 0.25 * uneven, std**2 * c.bent, floor, c.centre, c.prior, constant
    )
    for i in range(n):
        s.theta[i] = mean[i] / c.scale[i]


@jit
def learn_length(c, s, octaves, noise, recorded):
    """Set the typical length if it is known well enough.

    Args:
        c: Constants.
        s: State.
        octaves: Sum of the mean log2 lengths of rounds, over `OCTAVES`.
        noise: Its standard deviation.
        recorded: Records.
    """
    records = max(recorded, 1e-9)
    mean = OCTAVES * octaves / records
    # log2 of a round's lengths is taken to vary by 1
    variance = (OCTAVES * noise / records) ** 2 + 1.0 / records
    known = variance <= KNOWN**2 and abs(mean) <= 0.5 * OCTAVES - 1.0
    if known and s.length[0] == 0.0:
        s.length[0] = power(2.0, mean)


@jit
def joint_posterior(
    half, u, share, noise, spread, curvature_noise, response_noise, mean, prior, intercept
):
    """Posterior mean of t given noisy sums of v v' and of the responses <v, t> + e times v.

    With H from `shrunken_curvature`, u = H t + e, t ~ N(mean, prior) and
    e ~ N(0, spread H + s^2 I), s^2 the variance of the noise of u and of H t after shrinkage, it is
    mean + prior H (H prior H + spread H + s^2 I)^-1 (u - H mean).

    Args:
        half: Isometric half, ``(n (n + 1) / 2,)``.
        u: ``(n,)``.
        share: Number of rounds with a record.
        noise: Standard deviation of `half`.
        spread: Variance of a response.
        curvature_noise: Variance per coordinate of the whole noise of H times t.
        response_noise: Variance per coordinate of u, > 0.
        mean: ``(n,)``.
        prior: ``(n, n)``.
        intercept: Value of the constant feature.
    """
    n = u.shape[0]
    H, left = shrunken_curvature(half, n, share, noise, intercept)
    reached = matmul(prior, H)
    covariance = matmul(H, reached) + spread * H
    error = np.zeros(n)
    for j in range(n):
        covariance[j, j] += response_noise + left * curvature_noise
        error[j] = u[j] - (H[j] * mean).sum()
    solution = solved(covariance, error)
    t = np.zeros(n)
    for j in range(n):
        t[j] = mean[j] + (reached[j] * solution).sum()
    return t


@jit
def shrunken_curvature(half, n, share, noise, intercept):
    """Estimate of H = sum v v' over rounds, v = [z; b] / sqrt(1 + b^2), |z| = 1, and its factor.

    The trace and the constant's entry of H are public. The cross term of slopes and constant is
    shrunk by its expected noise, d noise^2 / 2, and obeys Cauchy-Schwarz; the deviation D of the
    Schur complement from an isotropic matrix is shrunk likewise, by (d (d + 1) / 2 - 1) noise^2
    (positive-part James-Stein); then the complement is made positive semidefinite. The factor is
    that of D.
    """
    d = n - 1
    H = np.zeros((n, n))
    column = 0
    for j in range(n):
        H[j, j] = half[column]
        for k in range(j + 1, n):
            H[j, k] = half[column + k - j] / ROOT2
            H[k, j] = H[j, k]
        column += n - j
    trace = share / (1.0 + intercept * intercept)
    level = share - trace
    square = (H[d, :d] * H[d, :d]).sum()
    remains = 0.0
    if square > 0.0:
        # d entries off the diagonal, each of variance noise^2 / 2.
        remains = max(0.0, 1.0 - 0.5 * d * noise * noise / square)
        # Cauchy-Schwarz: more would leave H indefinite.
        remains = min(remains, math.sqrt(level * trace / square))
    cross = remains * H[d, :d]
    cut = np.zeros((d, d))
    for j in range(d):
        for k in range(d):
            cut[j, k] = cross[j] * cross[k] / level
    slopes = H[:d, :d] - cut
    middle = np.trace(slopes) / d
    rest = trace - np.trace(cut)
    for j in range(d):
        slopes[j, j] -= middle
    deviation = (slopes * slopes).sum()
    left = 0.0
    if deviation > 0.0:
        # A traceless symmetric matrix has d (d + 1) / 2 - 1 coordinates in the half.
        left = max(0.0, 1.0 - (0.5 * d * (d + 1) - 1.0) * noise * noise / deviation)
    slopes *= left
    for j in range(d):
        slopes[j, j] += rest / d
    # Shrinkage alone may leave negative eigenvalues.
    if not definite(slopes):
        values, E = eigh(slopes)
        slopes = matmul(E * np.maximum(values, 0.0), E.T.copy())
        # The product is symmetric up to rounding only.
        slopes = 0.5 * (slopes + slopes.T)
    for j in range(d):
        for k in range(d):
            H[j, k] = slopes[j, k] + cut[j, k]
        H[d, j] = cross[j]
        H[j, d] = cross[j]
    H[d, d] = level
    return H, left


JOINT = Functions(act, record, learn)


class JointPlayer(Player):
    """Player that checks the features of arms where these are public."""

    # `observe` checks arms that are fixed, where there are no stretches
    replaced = ("act",)

    @property
    def public_contexts(self) -> bool:
        return self.problem.fixed_arms

    def begin(self, *arguments: Any) -> None:
        self._arms: Array | None = None
        super().begin(*arguments)
        if self.problem.fixed_arms:
            # Arms are checked in `observe`, round by round.
            self.stretches = False

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        B = len(action)
        observed = np.ones(B, bool) if feedback.observed is None else feedback.observed
        if self.problem.fixed_arms:
            self._check_arms(context, observed)
        super().observe(context, action, feedback)

    def _check_arms(self, context: Context, observed: Array) -> None:
        """Raise AgentError unless the arms of observed rounds have the features of the first."""
        assert context.arms is not None
        order = context.arms.argsort(axis=1)[:, :, None]
        arms = np.take_along_axis(context.features, order, axis=1)
        if self._arms is None:
            self._arms = np.full(arms.shape, np.nan)
        new = observed & np.isnan(self._arms).all(axis=(1, 2))
        self._arms[new] = arms[new]
        if not np.array_equal(arms[observed], self._arms[observed]):
            raise AgentError(f"every round should offer the same arms, round {context.t} does not")


@register_agent(
    "one-pass-linear-joint", supports=["recommendation"], protects=("joint", "user-round")
)
class OnePassLinearJoint(Algorithm):
    """One-pass private Newton on noisy sums of curvature and rewards; contexts are private.

    It plays the posterior mean of a linear predictor, as `OnePassLinear`.

    The guarantee is joint privacy of one round of a user, or of all of them, replace-one: an
    adversary may see every recommendation except the user's own.

    A row consists of the isometric half of v v', times w_H, and of v times w_u and the reward,
    scaled to [-1/2, 1/2]. A candidate that is shorter than its round's others has shorter slopes
    in v, and the reward of a longer one counts less (`record`). A trusted curator's rows also have
    the mean log length of the round's candidates, times w_l, w_l^2 = `SHARE`. From the release on
    that tells the typical length to a tenth, lengths are relative to it. Two rows differ by at most
    1. Up to w_H^2 = w_u^2 / 8 the curvature costs the response nothing
    (docs/agents/one-pass-linear.md). theta is the posterior mean given the best combination of the
    releases, with the curvature shrunk by its known noise. Where every round offers the same arms,
    v v' is public and the agent is `OnePassLinear` on unit vectors v.

    Args:
        norm: See `OnePassLinear`.
        intercept: See `OnePassLinear`.
        first: See `OnePassLinear`.
        ratio: See `OnePassLinear`.
        anytime: See `OnePassLinear`.
        prior_mean: See `OnePassLinear`; its length is learnt.
        max_rounds_per_user: See `OnePassLinear`; k rounds move the sums by at most k times as much.
        curvature: w_H^2 / w_u^2, > 0.
        length: Typical length of a candidate without what its round's candidates share, if it is
            public, > 0. By default it is learnt. Before that, and without a trusted curator,
            lengths are relative to those of the same round, which needs no unit but biases theta
            where long rounds have other directions than short ones.

    Raises:
        ParameterError: If a parameter is out of range, or rewards are not bounded.
        AgentError: With a budget, for fixed arms and partial feedback: which rounds were observed
            would be released without noise.
    """

    functions = JOINT
    player: ClassVar[type[Player]] = JointPlayer
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [1.0, 1.5],
        "first": [0.03, 0.07],
        "curvature": [0.125, 0.2],
    }

    prior_mean: Any = None
    norm: float = positive(1.5)
    intercept: float = positive(0.35)
    first: float = positive(0.07)
    ratio: float = real(1.1, 1.0, open_low=True)
    anytime: bool = flag(False)
    max_rounds_per_user: int | None = integer(None, 1)
    effect: float = real(0.0, 0.0, init=False)
    link: str = choice("logistic", ("identity", "logistic"), init=False)
    curvature: float = positive(0.2)
    length: float | None = positive(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protects = ("joint", "user" if self.max_rounds_per_user else "user-round")

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable("one-pass-linear-joint", problem, "recommendation")

    def functions_for(self, problem: ProblemInfo) -> Functions:
        return FUNCTIONS if problem.fixed_arms else JOINT

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        if problem.fixed_arms:
            if curator.private and problem.partial_feedback:
                raise AgentError(
                    "one-pass-linear-joint counts the observed rounds of fixed arms, and in a "
                    "rejection replay these reveal what the log's user saw: use one-pass-linear, "
                    "which protects rewards only"
                )
            return linear_plan(self, problem, curator)
        c = self._constants(problem, curator.trust == "curator")
        d = problem.dim
        low, high = problem.reward_range
        prior = theta_prior(self.norm, problem)
        unit_noise = c["unit_noise"] * math.sqrt(1.0 + self.intercept**2) * (high - low)
        model = release_model(self, problem, unit_noise, prior.variance)
        k = self.max_rounds_per_user
        learns = bool(c["w_l"])
        sums = curator.weighted_sum(
            (d + 1) * (d + 4) // 2 + learns,
            sensitivity=1.0,
            # of no effect, since no row is longer
            clip=longest_row(c["w_H"], c["w_u"], c["w_l"]) if curator.private else None,
            limit=k,
            schedule=partial(planned, d, self.first, self.ratio, prior.variance, model),
            model=model,
            what="running sums of curvature and response" + learns * " and log lengths",
        )
        cap = None if k is None else ContributionCap(k, curator.replicates)
        return Plan(sums, users=k is not None, cap=cap)

    def _constants(self, problem: ProblemInfo, trusted: bool) -> dict[str, Any]:
        """Return weights, and the prior of t = scale [theta; level / b], in units of the range.

        prior_mean belongs to x and t to x over the lengths of its round, which are taken as uniform
        in [0, 1], of mean 1/2 and variance 1/12.
        """
        d = problem.dim
        n = d + 1
        b = self.intercept
        low, high = problem.reward_range
        learns = self.length is None and trusted
        w_H, w_u, w_l = joint_weights(self.curvature, SHARE if learns else 0.0).tolist()
        prior = theta_prior(self.norm, problem)
        scale = np.append(np.ones(d), 1.0 / b) * math.sqrt(1.0 + b * b) / (high - low)
        known = prior.mean * scale
        centre = 0.5 * known
        covariance = prior.covariance * np.outer(scale, scale) + np.outer(known, known) / 12.0
        size = float(np.trace(covariance[:d, :d]) + (centre**2).sum())
        # mean square of a coordinate of the noise of H, which is isometric, times t
        bent = 0.5 * (1.0 + 1.0 / n) * size / w_H**2
        unit_noise = math.sqrt(1.0 / w_u**2 + bent)
        return dict(
            w_H=w_H,
            w_u=w_u,
            w_l=w_l,
            scale=scale,
            centre=centre,
            prior=covariance,
            bent=bent,
            unit_noise=unit_noise,
        )

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Any, Any]:
        if problem.fixed_arms:
            return linear_start(self, problem, sums, contrast=True)
        n = problem.dim + 1
        learns = sums.shape.width > n * (n + 3) // 2
        c = self._constants(problem, learns)
        unit_noise = c.pop("unit_noise")
        # Of exact sums one release is stored, because no first rounds are left out.
        known, history = combination(
            sums, sums.sigma > 0.0, unit_noise, 0.25 / problem.dim, None, every=1 << 60
        )
        low, high = problem.reward_range
        return Known(
            middle=0.5 * (low + high),
            width=high - low,
            intercept=self.intercept,
            sums=known,
            **c,
        ), State(theta_prior(self.norm, problem).mean, np.full(1, self.length or 0.0), *history)


def joint_weights(curvature: float, share: float = 0.0) -> Array:
    """Return (w_H, w_u, w_l) with w_H^2 = curvature w_u^2 and rows that differ by at most 1.

    Args:
        curvature: w_H^2 / w_u^2.
        share: w_l^2, the part of the squared distance that lengths have.
    """
    # Below 1/8 the curvature is free: the largest squared distance is 1 at w_u = 1.
    h = max(curvature, 0.125)
    most = (2.0 * h + 0.5 + 1.0 / (32.0 * h)) / (1.0 - share)
    return np.array([math.sqrt(curvature / most), math.sqrt(1.0 / most), math.sqrt(share)])


def longest_row(curvature: float, response: float, length: float) -> float:
    """Return the largest norm of a row with these weights, up to rounding."""
    return math.sqrt(curvature**2 + 0.25 * (response**2 + length**2)) * (1.0 + 1e-9)
