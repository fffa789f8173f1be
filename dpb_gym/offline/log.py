"""Logged bandit data with known propensities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Problem, ProblemInfo

if TYPE_CHECKING:
    from dpb_gym.offline.collecting import Behaviour


@dataclass(frozen=True, eq=False)
class LoggedData:
    """n logged rounds: candidates, the one that was shown, how likely that was, its reward.

    Build it with `from_arrays`, `from_columns`, `read_csv` or `from_problem`, which validate;
    the arrays are read-only.

    Attributes:
        features: float32 ``(n, m, d)``, the candidates' features.
        actions: int64 ``(n,)``, the candidate that was shown, in 0..m - 1.
        propensities: ``(n,)`` in (0, 1], the probability with which the logging policy
            chose just that candidate.
        rewards: ``(n,)`` within `reward_range`. Private data of the logged users.
        reward_range: Declared lowest and highest reward; never read off the data.
        arms: Pool indices of the candidates ``(n, m)``, or None.
        users: User ids ``(n,)``, or None.
        expected: Expected reward of every candidate ``(n, m)``, known for simulated logs
            and logs of complete ratings, else None.
        name: For titles and messages.

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
    arms: Array | None = None
    users: Array | None = None
    expected: Array | None = None
    name: str = "log"

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        actions: ArrayLike,
        propensities: ArrayLike,
        rewards: ArrayLike,
        reward_range: tuple[float, float],
        *,
        arms: ArrayLike | None = None,
        users: ArrayLike | None = None,
        expected: ArrayLike | None = None,
        name: str = "log",
    ) -> LoggedData:
        """Validates arrays and makes a log of copies of them.

        Args:
            features: ``(n, m, d)``, finite; stored as float32, as contexts are.
            actions: Integers ``(n,)`` in 0..m - 1.
            propensities: ``(n,)`` in (0, 1].
            rewards: ``(n,)`` within `reward_range`.
            reward_range: Lowest and highest possible reward.
            arms: Integers ``(n, m)``, optional.
            users: Integers ``(n,)``, optional.
            expected: ``(n, m)`` within `reward_range`, optional.
            name: For titles and messages.

        Raises:
            ParameterError: If an array has a wrong shape or a value out of range; the
                message names the first bad round.
        """
        low, high = _range(reward_range)
        x = validation.array("features", features, (None, None, None))
        n, m, d = x.shape
        if n < 2 or m < 2 or d < 1:
            raise ParameterError(
                f"a log needs at least 2 rounds, 2 candidates and 1 feature, got shape {x.shape}"
            )
        action = _integers("actions", actions, (n,))
        _inside("actions", action, 0, m - 1)
        p = validation.array("propensities", propensities, (n,))
        _inside("propensities", p, 0.0, 1.0)
        if (p == 0.0).any():
            raise ParameterError(
                f"propensities must be positive, got 0 in round {int((p == 0.0).argmax())}: what "
                "was logged cannot have been impossible"
            )
        r = validation.array("rewards", rewards, (n,))
        _inside("rewards", r, low, high)
        values = None if expected is None else validation.array("expected", expected, (n, m))
        if values is not None:
            _inside("expected", values, low, high)
        return cls(
            features=_frozen(x.astype(np.float32)),
            actions=_frozen(action),
            propensities=_frozen(p),
            rewards=_frozen(r),
            reward_range=(low, high),
            arms=None if arms is None else _frozen(_integers("arms", arms, (n, m))),
            users=None if users is None else _frozen(_integers("users", users, (n,))),
            expected=None if values is None else _frozen(values),
            name=str(name),
        )

    @classmethod
    def from_columns(
        cls, frame: Any, reward_range: tuple[float, float], name: str = "log"
    ) -> LoggedData:
        """Makes a log of a data frame or mapping of columns; see `read_csv` for their names.

        Args:
            frame: Anything with named columns: a dict of arrays, a pandas or Polars frame,
                a pyarrow table.
            reward_range: Lowest and highest possible reward.
            name: For titles and messages.

        Raises:
            DataError: If a column is missing or left over.
            ParameterError: If a value is out of range.
        """
        from dpb_gym.offline.tables import from_columns

        return from_columns(frame, reward_range, name)

    @classmethod
    def read_csv(
        cls, path: str | os.PathLike[str], reward_range: tuple[float, float]
    ) -> LoggedData:
        """Reads a log from a CSV file with a header, one line per round.

        Columns, in any order: ``action``, ``propensity``, ``reward``, and ``x_K_J`` for
        coordinate J of candidate K, both counted from 0; optional ``arm_K``, ``expected_K``
        and ``user``. `write_csv` writes this format.

        Args:
            path: The file.
            reward_range: Lowest and highest possible reward.

        Raises:
            DataError: If the file is missing or damaged; the message names the line, what
                was expected and what was found.
        """
        from dpb_gym.offline.tables import read_csv

        return read_csv(path, reward_range)

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the log for `read_csv`, without loss. The file holds the raw rewards."""
        from dpb_gym.offline.tables import write_csv

        write_csv(self, path)

    @classmethod
    def from_problem(
        cls,
        problem: Problem | str,
        rounds: int,
        seed: int = 0,
        behaviour: Behaviour = None,
        skip: int = 0,
        **kwargs: Any,
    ) -> LoggedData:
        """Runs a recommendation problem under a logging policy; see `collect`.

        Args:
            problem: The problem, or an environment id.
            rounds: Rounds to log, at least 2.
            seed: Seed of the replicate: it fixes the hidden parameters, as everywhere.
            behaviour: The logging policy, uniform by default.
            skip: Rounds to pass over first, so that a policy trained on the first rounds of
                the same replicate is evaluated on later ones.
            **kwargs: Parameters of the environment.
        """
        from dpb_gym.offline.collecting import collect

        return collect(problem, rounds, [seed], behaviour, skip, **kwargs)[0]

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        _, m, d = self.features.shape
        return f"LoggedData({self.name!r}: {len(self):,} rounds, {m} candidates, {d} features)"

    @property
    def n_candidates(self) -> int:
        """Candidates per round m."""
        return int(self.features.shape[1])

    @property
    def dim(self) -> int:
        """Features of a candidate d."""
        return int(self.features.shape[2])

    def select(self, rounds: Sequence[int] | slice | Array) -> LoggedData:
        """The log of some of the rounds, e.g. ``log.select(slice(0, 1000))``.

        Raises:
            ParameterError: If fewer than two rounds remain.
        """
        chosen: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            chosen[field.name] = _frozen(value[rounds]) if isinstance(value, np.ndarray) else value
        if len(chosen["actions"]) < 2:
            raise ParameterError("a log needs at least 2 rounds")
        return LoggedData(**chosen)

    def problem_info(self, partial_feedback: bool = False) -> ProblemInfo:
        """What an agent that learns from this log may know before its first round."""
        return ProblemInfo(
            kind="recommendation",
            horizon=len(self),
            dim=self.dim,
            reward_range=self.reward_range,
            n_candidates=self.n_candidates,
            partial_feedback=partial_feedback,
        )


def _range(value: Any) -> tuple[float, float]:
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        raise ParameterError(f"reward_range must be (lowest, highest), got {value!r}") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ParameterError(f"reward_range must be finite and increasing, got {value!r}")
    return low, high


def _integers(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    found = validation.array(name, value, shape)
    whole = found.astype(np.int64)
    if (whole != found).any():
        bad = found[whole != found][0]
        raise ParameterError(f"{name} must be integers, got {bad}")
    return whole


def _inside(name: str, value: Array, low: float, high: float) -> None:
    outside = ((value < low) | (value > high)).reshape(len(value), -1).any(axis=1)
    if outside.any():
        bad = int(outside.argmax())
        raise ParameterError(
            f"{name} must lie in [{low:g}, {high:g}], got {value[bad]} in round {bad}"
        )


def _frozen(value: Array) -> Array:
    result = np.array(value, order="C")
    result.flags.writeable = False
    return result
