"""Off-policy evaluation of a policy on a log: `evaluate_offline` and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.files import text_template
from dpb_gym.offline.estimators import Estimate, Weighted, effective_sample_size, with_intervals
from dpb_gym.offline.log import Log
from dpb_gym.offline.slate_log import SlateProbabilities
from dpb_gym.problems.propensity_check import propensity_doubt

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee

LEAST_SHARE = 0.1
"""Effective share of the rounds below which estimates are doubted."""
REMARKS = Path(__file__).with_name("offline_remarks.txt.j2")


@dataclass(frozen=True)
class OfflineEvaluation:
    """Result of `evaluate_offline`.

    These numbers are computed from raw rewards and **not private**. `release_value` returns a
    private one.

    Attributes:
        estimates: One per estimator, in the given order.
        rounds: Length n of the log.
        effective_sample_size: (sum w)^2 / sum w^2.
        mean_weight: Mean of the weights. A value far from 1 means that the log does not cover the
            policy or that its propensities are wrong.
        largest_weight: Largest weight.
        logged_mean: Mean logged reward, the value of the logging policy.
        settings: Thresholds and bandwidth in use, by estimator or name.
        level: Confidence level of the intervals.
        estimated: Whether the propensities are a model's.
        true_value: Value on the log's own contexts, if the log knows expected rewards.
        guarantee: Guarantee of the evaluated agent; None for a non-private one or an array.
        doubts: Reasons not to trust the estimates, each a sentence: wrong propensities, weights of
            few effective rounds, intervals outside of the possible rewards.
    """

    estimates: tuple[Estimate, ...]
    rounds: int
    effective_sample_size: float
    mean_weight: float
    largest_weight: float
    logged_mean: float
    settings: dict[str, float] = field(default_factory=dict)
    level: float = 0.95
    estimated: bool = False
    true_value: float | None = None
    guarantee: Guarantee | None = None
    doubts: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        for estimate in self.estimates:
            if estimate.name == name:
                return estimate
        raise unknown_name("estimator", name, [e.name for e in self.estimates])

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON values."""
        plain = dict(vars(self))
        plain["estimates"] = [vars(e) for e in self.estimates]
        plain["guarantee"] = None if self.guarantee is None else self.guarantee.to_dict()
        return plain

    def _rows(self) -> list[list[str]]:
        percent = f"{100 * self.level:g}%"
        head = ["estimator", "value", "std err", f"{percent} normal", f"{percent} bootstrap"]
        return [head] + [
            [e.name, f"{e.value:.4f}", f"{e.std_error:.4f}"]
            + [f"[{low:.4f}, {high:.4f}]" for low, high in (e.normal, e.percentile)]
            for e in self.estimates
        ]

    def _remarks(self) -> list[str]:
        return text_template(REMARKS, trim_blocks=True).render(evaluation=self).split("\n")

    def __str__(self) -> str:
        wide = max(10, *(len(e.name) for e in self.estimates))
        lines = [
            f"{name:<{wide}} {value:>8} {error:>8}  {normal:<18} {drawn}"
            for name, value, error, normal, drawn in self._rows()
        ]
        return "\n".join([*lines, *self._remarks()])

    def _repr_html_(self) -> str:
        from dpb_gym.report.notebook import grid

        columns, *rows = self._rows()
        remarks = "".join(f"<small>{escape(line)}</small><br>" for line in self._remarks())
        return grid(columns, rows) + remarks


def evaluate_offline(
    target: Agent | SlateProbabilities | ArrayLike,
    log: Log,
    *,
    estimators: Sequence[str] | str | None = None,
    q: ArrayLike | None = None,
    ridge: float = 1.0,
    folds: int = 2,
    samples: int = 200,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    **options: Any,
) -> OfflineEvaluation:
    """Estimate the value of a policy from a log of another policy.

    The estimates are **not private**, also for a private policy: they read the log's raw rewards.
    `dpb_gym.offline.release_value` releases a private one.

    Args:
        target: A trained agent of one replicate (it is copied and not changed), or the policy's
            choices in the logged rounds: probabilities ``(n, m)`` of the candidates of a
            `LoggedData`, slates ``(n, K)`` or `SlateProbabilities` for a `SlateLog`, prices
            ``(n,)`` for a `PriceLog`. For agents of many replicates see
            `dpb_gym.offline.probabilities`.
        log: The log.
        estimators: Names in ``log.estimators``; ``log.usual`` by default.
        q: Predicted rewards, in the shape of ``log.predicted``, which is the default.
        ridge: Penalty of the default model.
        folds: Parts of its cross-fitting.
        samples: Choices per round of a random agent (see `probabilities`).
        level: Confidence level of the intervals, in (0, 1).
        resamples: Bootstrap resamples; 0 for none.
        seed: Seed of the bootstrap and the folds.
        **options: ``threshold``, ``clip``, ``shrinkage`` of the estimators that change weights,
            chosen by estimated squared error by default; ``groups`` of the candidates, integers
            ``(m,)`` or ``(n, m)``, for marginalised estimates; ``kernel`` and ``bandwidth`` for
            prices (see `dpb_gym.offline.price_log`).

    Raises:
        ParameterError: If an argument is out of range or `target` is not a distribution.
        AgentError: If the agent has more than one replicate.
        DataError: If the policy never chooses what was logged (self-normalised estimates only).

    Example:
        >>> import numpy as np
        >>> from dpb_gym.offline import LoggedData, evaluate_offline
        >>> log = LoggedData.from_problem("DPB/Recommendation-v0", rounds=500)
        >>> always_first = np.eye(5)[np.zeros(500, int)]
        >>> estimates = evaluate_offline(always_first, log, estimators="snips")
        >>> abs(estimates["snips"].value - estimates.true_value) < 4 * estimates["snips"].std_error
        True
    """
    if not isinstance(log, Log):
        raise ParameterError(f"log must be a log such as LoggedData, got {type(log).__name__}")
    names = log.usual if estimators is None else estimators
    names = (names,) if isinstance(names, str) else tuple(names)
    names = tuple(validation.choice("estimators", name, log.estimators) for name in names)
    if not names:
        raise ParameterError(f"name at least one estimator of {', '.join(log.estimators)}")
    level = validation.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    resamples = validation.integer("resamples", resamples, 0)
    seed = validation.integer("seed", seed, 0)
    for name in options:
        if name not in log.options:
            raise unknown_name(f"option of a {type(log).__name__}", name, log.options)
    if isinstance(target, str):
        raise ParameterError(
            f"{target!r} is not trained; train_offline({target!r}, log) returns an agent"
        )
    policy = log.target(target, samples)
    model = {"ridge": ridge, "folds": folds, "seed": seed}
    parts: Weighted = log.ingredients(policy, names, q, model, options)
    estimates = with_intervals(
        {name: log.estimators[name](parts) for name in names}, level, resamples, seed
    )
    effective = effective_sample_size(parts.weights)
    doubts = _doubts(log, estimates, effective, parts.reward_range)
    truth = None if log.expected is None else (policy * log.expected).sum(axis=1).mean()
    return OfflineEvaluation(
        estimates=estimates,
        rounds=len(log),
        effective_sample_size=effective,
        mean_weight=float(parts.weights.mean()),
        largest_weight=float(parts.weights.max()),
        logged_mean=float(parts.rewards.mean()),
        settings=dict(parts.chosen),
        level=level,
        estimated=log.estimated,
        true_value=None if truth is None else float(truth),
        guarantee=target.curator.guarantee if isinstance(target, Agent) else None,
        doubts=tuple(doubts),
    )


def _doubts(
    log: Log, estimates: Sequence[Estimate], effective: float, possible: tuple[float, float]
) -> list[str]:
    """Return reasons not to trust estimates; see `OfflineEvaluation.doubts`.

    Args:
        log: The log.
        estimates: The estimates.
        effective: Effective sample size.
        possible: Lowest and highest possible value.
    """
    inverse = log.inverse_propensities()
    doubts = [] if inverse is None else propensity_doubt(*inverse)
    share = effective / len(log)
    if share < LEAST_SHARE:
        doubts.append(
            f"few rounds count: the weights have the effect of {effective:,.0f} rounds, "
            f"{share:.1%} of {len(log):,}, because the policy rarely chooses what was logged"
        )
    low, high = possible
    beyond = [e for e in estimates if e.normal[0] < low or e.normal[1] > high]
    if beyond:
        ends = ", ".join(f"{e.name} [{e.normal[0]:.3g}, {e.normal[1]:.3g}]" for e in beyond)
        doubts.append(
            f"intervals reach beyond the possible rewards, {low:g} to {high:g}, so the log is too "
            f"short for these weights: {ends}"
        )
    return doubts
