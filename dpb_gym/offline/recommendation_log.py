"""Logs of recommendations: `LoggedData`, evaluated and trained on off-policy.

Tables of raw responses before any policy sees them are in `dpb_data.response_tables`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.offline.array_checks import distribution, features_of, optional, values
from dpb_gym.offline.collecting import Columns, draw_candidates
from dpb_gym.offline.estimators import (
    LIMITS,
    NEEDS_MODEL,
    WEIGHTING,
    Estimator,
    Weighted,
    cross_fitted,
    estimated_propensities,
)
from dpb_gym.offline.log import Log, answers
from dpb_gym.offline.targets import frozen_shares
from dpb_gym.problems.base import Array, Problem, ProblemInfo

COLUMNS = {
    "action": ("actions", False), "reward": ("rewards", False),
    "propensity": ("propensities", False), "user": ("users", False), "arm": ("arms", True),
    "expected": ("expected", True), "behaviour": ("behaviour", True),
}  # fmt: skip
"""Columns of a table: name of the array, and whether there is one column per candidate."""


def _layout(names: list[str], where: str) -> tuple[int, int]:
    """Return the numbers of candidates and features; check that the columns are complete."""
    matches = (re.fullmatch(r"x_(0|[1-9]\d*)_(0|[1-9]\d*)", name) for name in names)
    pairs = {fits[0]: (int(fits[1]), int(fits[2])) for fits in matches if fits}
    if not pairs:
        raise DataError(f"{where}: expected feature columns x_0_0, x_0_1, ..., found none")
    m, d = (1 + max(pair[axis] for pair in pairs.values()) for axis in (0, 1))
    if m * d != len(pairs):
        raise DataError(
            f"{where}: expected {m} x {d} feature columns x_0_0 to x_{m - 1}_{d - 1}, "
            f"found {len(pairs)}"
        )
    wanted = ["action", "reward"]
    known = ["action", "propensity", "reward", "user"]
    for kind in (column for column, (_, each) in COLUMNS.items() if each):
        each = [f"{kind}_{k}" for k in range(m)]
        known += each
        wanted += each if any(name.startswith(f"{kind}_") for name in names) else []
    for missing in (name for name in wanted if name not in names):
        raise DataError(f"{where}: expected a column {missing!r}, found {', '.join(names[:6])}")
    for unknown in (n for n in names if n not in known and n not in pairs):
        raise DataError(f"{where}: unknown column {unknown!r}; known are {', '.join(known)}")
    return m, d


@dataclass(frozen=True, eq=False, repr=False)
class LoggedData(Log):
    """n logged recommendations: candidates, shown candidate, its propensity and its reward.

    Create it from arrays, or with `from_columns` or `from_problem`.

    Attributes:
        features: float32 ``(n, m, d)``, the candidates' features.
        actions: int64 ``(n,)``, the shown candidate, in 0..m - 1.
        propensities: ``(n,)`` in (0, 1], probability of the shown candidate under the logging
            policy. None: that of `behaviour`, or without `behaviour` the estimate of a
            cross-fitted model (`estimated_propensities`; then `estimated` is True).
        behaviour: ``(n, m)``, the logging policy's probability of every candidate, or None.
        estimated: Whether the propensities come from a model instead of the logging policy.
        minimum_propensity: Declared, public lower bound on the propensity of every possible round,
            or None; never computed from the data. Replay training needs it.
        arms: Pool indices of the candidates ``(n, m)``, or None.
        users: User ids ``(n,)``, or None.
        expected: Expected reward of every candidate ``(n, m)``, for simulated logs and logs of
            complete ratings, else None.

    Example:
        >>> log = LoggedData.from_problem("DPB/Recommendation-v0", rounds=200, seed=7)
        >>> log
        LoggedData('DPB/Recommendation-v0': 200 rounds, 5 candidates, 20 features)
        >>> float(log.propensities[0])
        0.2
    """

    features: Array
    actions: Array
    propensities: Array
    rewards: Array
    reward_range: tuple[float, float]
    behaviour: Array | None = None
    minimum_propensity: float | None = None
    arms: Array | None = None
    users: Array | None = None
    expected: Array | None = None
    name: str = "log"
    estimated: bool = False

    kind: ClassVar[str] = "recommendation"
    decide = staticmethod(draw_candidates)
    by_candidate: ClassVar[bool] = True
    estimators: ClassVar[Mapping[str, Estimator]] = WEIGHTING
    usual: ClassVar[tuple[str, ...]] = ("ips", "snips", "dm", "dr", "switch-dr")
    options: ClassVar[tuple[str, ...]] = (*LIMITS, "groups")

    def __post_init__(self) -> None:
        ends = validation.span("reward_range", self.reward_range)
        x = features_of(self.features, 3)
        n, m, _ = x.shape
        actions = values("actions", self.actions, (n,), 0, m - 1, dtype=np.int64)
        behaviour = self.behaviour
        propensities = self.propensities
        least = 0.0
        if self.minimum_propensity is not None:
            name = "minimum_propensity"
            least = validation.real(name, self.minimum_propensity, 0.0, 1.0, open_low=True)
        if behaviour is None and propensities is None:
            behaviour = estimated_propensities(x, actions)
            self._keep(estimated=True)
        if behaviour is not None:
            behaviour = distribution("behaviour", behaviour, (n, m))
            if propensities is None:
                propensities = behaviour[np.arange(n), actions]
        self._keep(
            features=x, actions=actions, reward_range=ends, behaviour=behaviour,
            propensities=values("propensities", propensities, (n,), least, 1.0, positive=True),
            rewards=values("rewards", self.rewards, (n,), *ends),
            arms=optional("arms", self.arms, (n, m), dtype=np.int64),
            users=optional("users", self.users, (n,), dtype=np.int64),
            expected=optional("expected", self.expected, (n, m), *ends),
        )  # fmt: skip

    @classmethod
    def from_columns(
        cls, source: Any, reward_range: tuple[float, float], name: str | None = None, **options: Any
    ) -> LoggedData:
        """Return a log from a table with one row per round.

        Columns, in any order: ``action``, ``reward``, and ``x_K_J`` for coordinate J of candidate
        K, both counted from 0. Optional are ``propensity`` (estimated if missing), ``arm_K``,
        ``expected_K``, ``behaviour_K`` and ``user``. `write_csv` writes such a file.

        Args:
            source: A frame, a mapping of arrays, or the path of a CSV or Parquet file, as
                `dpb_data.column_reader.take_columns` takes them.
            reward_range: Lowest and highest possible reward.
            name: For titles and messages; by default the file's.
            **options: ``minimum_propensity``.

        Raises:
            DataError: If the table is damaged, or a column is missing or unknown; the message
                names the line if possible.
            ParameterError: If a value is out of range.
        """
        from dpb_data.column_reader import Column, open_table

        opened = open_table(source)
        m, d = _layout(opened.columns, f"{opened.where}{': line 1' * (opened.unit == 'line')}")
        read = opened.take([Column(key) for key in opened.columns])
        if len(read["action"]) < 2:
            raise DataError(f"{opened.where}: expected at least 2 rounds, found 1")
        pairs = [read[f"x_{k}_{j}"] for k in range(m) for j in range(d)]
        given = {"propensities": None, **options}
        for column, (field, each) in COLUMNS.items():
            if each and f"{column}_0" in read:
                given[field] = np.stack([read[f"{column}_{k}"] for k in range(m)], axis=1)
            elif column in read:
                given[field] = read[column]
        features = np.stack(pairs, axis=1, dtype=np.float32).reshape(-1, m, d)
        try:
            return cls.from_arrays(
                features, reward_range=reward_range, name=name or opened.name, **given
            )
        except ParameterError as error:
            if opened.unit != "line":
                raise
            first = opened.first
            text = re.sub(r"in round (\d+)", lambda s: f"in line {int(s[1]) + first}", str(error))
            raise DataError(f"{opened.where}: {text}") from None

    @classmethod
    def of_rounds(cls, made: Problem, c: Columns, least: float | None, name: str) -> LoggedData:
        named = {k: c[k] for k in ("arms", "users") if k in c and (c[k] >= 0).all()}
        return cls.from_arrays(
            c["features"], c["actions"], None, c["rewards"], made.info.reward_range,
            behaviour=c["behaviour"], expected=c["expected"], name=name,
            minimum_propensity=least, **named,
        )  # fmt: skip

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the log for `from_columns`, without loss. The file contains the raw rewards."""
        import pyarrow as pa
        from pyarrow import csv

        left_out = ("propensities", "behaviour") if self.estimated else ()
        columns: dict[str, Array] = {}
        for column, (field, each) in COLUMNS.items():
            array = getattr(self, field)
            if array is None or field in left_out:
                continue
            split = zip((f"{column}_{k}" for k in range(self.n_candidates)), array.T)
            columns |= dict(split) if each else {column: array}
        for k in range(self.n_candidates):
            columns |= {f"x_{k}_{j}": self.features[:, k, j] for j in range(self.dim)}
        arrays = {key: pa.array(np.ascontiguousarray(array)) for key, array in columns.items()}
        csv.write_csv(pa.table(arrays), path)

    def __repr__(self) -> str:
        n, m, d = self.features.shape
        return f"LoggedData({self.name!r}: {n:,} rounds, {m} candidates, {d} features)"

    @property
    def n_candidates(self) -> int:
        """Number of candidates per round m."""
        return int(self.features.shape[1])

    @property
    def dim(self) -> int:
        """Number of features of a candidate d."""
        return int(self.features.shape[2])

    def problem_info(
        self, partial_feedback: bool = False, rounds: int | None = None
    ) -> ProblemInfo:
        """Return the problem info for an agent that learns from this log or `rounds` of it."""
        return ProblemInfo(
            kind="recommendation",
            horizon=rounds or len(self),
            dim=self.dim,
            reward_range=self.reward_range,
            n_candidates=self.n_candidates,
            partial_feedback=partial_feedback,
        )

    def inverse_propensities(self) -> tuple[Array, float, str] | None:
        return 1.0 / self.propensities, self.n_candidates, "the number of candidates"

    def predicted(self, **model: Any) -> Array:
        """Return the predicted reward of every candidate ``(n, m)``, within the declared range.

        A cross-fitted ridge regression on the shown candidate's features. Reads raw rewards:
        **not private**. See `Log.ingredients` for `model`.
        """
        x = self.features.astype(np.float64)
        shown = x[np.arange(len(self)), self.actions]
        return np.clip(cross_fitted(shown, self.rewards, x, **model), *self.reward_range)

    def target(self, policy: Agent | ArrayLike, samples: int) -> Array:
        """Return probabilities of the candidates ``(n, m)``; see `offline.probabilities`."""
        if isinstance(policy, Agent):
            return probabilities(policy, self, samples)
        return distribution("target", policy, self.features.shape[:2])

    def ingredients(
        self, target: Array, names: Sequence[str], q: ArrayLike | None, model: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Weighted:  # fmt: skip
        """See `Log.ingredients`; `q` is ``(n, m)``."""
        n = np.arange(len(self))
        shown = self.actions
        if q is None and any(name in NEEDS_MODEL for name in names):
            q = self.predicted(**model)
        predicted = np.zeros_like(target) if q is None else validation.array("q", q, target.shape)
        grouped = None
        groups = options.get("groups")
        if groups is not None and self.behaviour is not None:
            own = np.broadcast_to(
                values("groups", groups, np.shape(groups), dtype=np.int64), target.shape
            )
            alike = own == own[n, shown][:, None]
            grouped = (target * alike).sum(axis=1) / (self.behaviour * alike).sum(axis=1)
        return Weighted(
            weights=target[n, shown] / self.propensities,
            rewards=self.rewards,
            reward_range=self.reward_range,
            model_value=(target * predicted).sum(axis=1),
            model_shown=predicted[n, shown],
            grouped=grouped,
            limits=options,
        )


def probabilities(
    agent: Agent, log: LoggedData | Sequence[LoggedData], samples: int = 200
) -> Array:
    """Return a frozen agent's probability of every logged candidate.

    The agent is copied and observes no reward, so it does not learn and spends no privacy.
    `Agent.probabilities` is used if the agent has it. Otherwise a deterministic agent acts once
    per round and gets probabilities 0 and 1. A random agent (Thompson sampling) acts `samples`
    times, and the probabilities are the shares of its choices. IPS, DM and DR are linear in these
    probabilities, so they are unbiased for any number of samples. Fewer samples add variance, and
    a small bias to SNIPS and switch-DR.

    Args:
        agent: A trained recommendation agent of B replicates.
        log: A log (B = 1), or one log per replicate, all of one shape.
        samples: Choices per round of a random policy, at least 1.

    Returns:
        ``(n, m)`` for one log, ``(B, n, m)`` for a sequence of logs; rows sum to one.

    Raises:
        ParameterError: If the logs differ in shape.
        AgentError: If the agent does not have one replicate per log, or chooses outside the
            candidates.
    """
    logs = [log] if isinstance(log, LoggedData) else list(log)
    if not logs or any(other.features.shape != logs[0].features.shape for other in logs):
        raise ParameterError("the logs must be at least one, and all of the same shape")
    n, m, _ = logs[0].features.shape
    result = np.empty((len(logs), n, m))
    for i, shares in enumerate(answers(agent, logs, samples, frozen_shares)):
        result[:, i] = shares
    return result[0] if isinstance(log, LoggedData) else result
