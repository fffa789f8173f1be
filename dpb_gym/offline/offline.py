"""`evaluate_offline`: a policy, a log, every estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.offline.estimators import (
    ESTIMATORS,
    TERMS,
    check_estimators,
    effective_sample_size,
    ingredients,
)
from dpb_gym.offline.intervals import Estimate, with_intervals
from dpb_gym.offline.log import LoggedData
from dpb_gym.offline.rewards import ridge_rewards
from dpb_gym.offline.targets import check_distribution, probabilities

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee

NEEDS_MODEL = ("dm", "dr", "switch-dr")


@dataclass(frozen=True)
class OfflineEvaluation:
    """What a log says about a policy.

    None of these numbers is private: they are computed from raw rewards. `release_value`
    makes one that is.

    Attributes:
        estimates: One per estimator, in the order asked for.
        rounds: Length n of the log.
        effective_sample_size: (sum w)^2 / sum w^2.
        mean_weight: Mean of the weights; far from 1 means that the log does not cover the
            policy or that its propensities are wrong.
        largest_weight: Largest weight.
        logged_mean: Mean logged reward, the value of the logging policy.
        threshold: Threshold of switch-DR, None if it was not asked for.
        level: Confidence level of the intervals.
        true_value: Value on the log's own contexts, if the log knows expected rewards.
        guarantee: The evaluated agent's own guarantee, None for a non-private one or an array.
    """

    estimates: tuple[Estimate, ...]
    rounds: int
    effective_sample_size: float
    mean_weight: float
    largest_weight: float
    logged_mean: float
    threshold: float | None
    level: float
    true_value: float | None = None
    guarantee: Guarantee | None = None

    def __getitem__(self, name: str) -> Estimate:
        for estimate in self.estimates:
            if estimate.name == name:
                return estimate
        raise unknown_name("estimator", name, [e.name for e in self.estimates])

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as plain JSON values."""
        plain = {k: getattr(self, k) for k in self.__dataclass_fields__}
        plain["estimates"] = [e.to_dict() for e in self.estimates]
        plain["guarantee"] = None if self.guarantee is None else self.guarantee.to_dict()
        return plain

    def table(self) -> str:
        """The estimates as text."""
        percent = f"{100 * self.level:g}%"
        head = f"{'estimator':<10} {'value':>8} {'std err':>8}  {percent + ' normal':<18}"
        lines = [head + f" {percent} bootstrap"]
        for e in self.estimates:
            spans = "".join(
                f"{f'[{low:.4f}, {high:.4f}]':<19}" for low, high in (e.normal, e.percentile)
            )
            lines.append(f"{e.name:<10} {e.value:8.4f} {e.std_error:8.4f}  {spans}".rstrip())
        lines.append(
            f"{self.rounds:,} rounds, worth {self.effective_sample_size:,.0f} under the policy; "
            f"weights: mean {self.mean_weight:.3f}, largest {self.largest_weight:.3g}"
        )
        lines.append(f"logging policy {self.logged_mean:.4f}")
        if self.true_value is not None:
            lines[-1] += f"; true value on these contexts {self.true_value:.4f}"
        if self.guarantee is not None:
            lines.append(f"trained with: {self.guarantee}")
        lines.append("estimates read raw rewards: not private")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        from dpb_gym.report.notebook import grid

        percent = f"{100 * self.level:g}%"
        columns = ["estimator", "value", "std err", f"{percent} normal", f"{percent} bootstrap"]
        rows = [
            [e.name, f"{e.value:.4f}", f"{e.std_error:.4f}"]
            + [f"[{low:.4f}, {high:.4f}]" for low, high in (e.normal, e.percentile)]
            for e in self.estimates
        ]
        said = self.table().split("\n")[len(rows) + 1 :]
        return grid(columns, rows) + "".join(f"<small>{escape(line)}</small><br>" for line in said)


def evaluate_offline(
    target: Agent | ArrayLike,
    log: LoggedData,
    *,
    estimators: Sequence[str] | str = ESTIMATORS,
    q: ArrayLike | None = None,
    ridge: float = 1.0,
    folds: int = 2,
    threshold: float | None = None,
    samples: int = 200,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> OfflineEvaluation:
    """Estimates what a policy would have earned on a log of another policy.

    The estimates are **not private**, whatever the policy's guarantee: they read the log's raw
    rewards. `dpb_gym.offline.release_value` releases one with a guarantee.

    Args:
        target: A trained agent of one replicate (it is copied and stays as it is), or the
            policy's probabilities ``(n, m)`` over the logged candidates. For agents of many
            replicates see `dpb_gym.offline.probabilities`.
        log: The log.
        estimators: Among ``"ips"``, ``"snips"``, ``"dm"``, ``"dr"``, ``"switch-dr"`` and
            ``"logged"`` (the mean logged reward, whatever the policy).
        q: Predicted rewards ``(n, m)``; `ridge_rewards` by default.
        ridge: Penalty of the default model.
        folds: Parts of its cross-fitting.
        threshold: Of switch-DR; `automatic_threshold` by default.
        samples: How often a random agent is asked per round (see `probabilities`).
        level: Confidence level of the intervals, in (0, 1).
        resamples: Bootstrap resamples; 0 for none.
        seed: Of the bootstrap and the folds.

    Raises:
        ParameterError: If an argument is out of range or `target` is no distribution.
        AgentError: If the agent has more than one replicate.
        DataError: If the policy never chooses what was logged (SNIPS only).

    Example:
        >>> import numpy as np
        >>> from dpb_gym.offline import LoggedData, evaluate_offline
        >>> log = LoggedData.from_problem("DPB/Recommendation-v0", rounds=500)
        >>> always_first = np.eye(5)[np.zeros(500, int)]
        >>> found = evaluate_offline(always_first, log, estimators="snips")
        >>> abs(found["snips"].value - found.true_value) < 4 * found["snips"].std_error
        True
    """
    if not isinstance(log, LoggedData):
        raise ParameterError(f"log must be a LoggedData, got {type(log).__name__}")
    names = check_estimators(estimators)
    level = validation.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    resamples = validation.integer("resamples", resamples, 0)
    seed = validation.integer("seed", seed, 0)
    guarantee = None
    if isinstance(target, Agent):
        policy = probabilities(target, log, samples)
        guarantee = target.curator.guarantee
    elif isinstance(target, str):
        raise ParameterError(
            f"{target!r} is not trained; train_offline({target!r}, log) returns an agent"
        )
    else:
        policy = check_distribution("target", target, (len(log), log.n_candidates))
    model = q
    if model is None and any(name in NEEDS_MODEL for name in names):
        model = ridge_rewards(log, ridge, folds, seed)
    switching = "switch-dr" in names
    parts = ingredients(log, policy, model, threshold if switching else np.inf)
    true_value = None if log.expected is None else float((policy * log.expected).sum(axis=1).mean())
    return OfflineEvaluation(
        estimates=with_intervals({k: TERMS[k](parts) for k in names}, level, resamples, seed),
        rounds=len(log),
        effective_sample_size=effective_sample_size(log, policy),
        mean_weight=float(parts.weights.mean()),
        largest_weight=float(parts.weights.max()),
        logged_mean=float(log.rewards.mean()),
        threshold=parts.threshold if switching else None,
        level=level,
        true_value=true_value,
        guarantee=guarantee,
    )
