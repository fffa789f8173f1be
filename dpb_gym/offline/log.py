"""Base class of logs of recommendations, slates and prices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym.agent import Agent
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.offline.collecting import LOGS, Columns, Decide, collect
from dpb_gym.offline.targets import Ask, frozen_choices
from dpb_gym.problems.base import Array, Context, Problem


class Log(ABC):
    """Base class of logs. The constructor checks and copies all arrays; they are read-only.

    Attributes:
        features: float32, what the policy saw; the first axis is the n rounds.
        rewards: ``(n,)`` within `reward_range`. Private data of the logged users.
        reward_range: Declared lowest and highest reward, never computed from the data.
        name: For titles and messages.
        expected: Expected reward of every possible choice, None if unknown.
        estimated: Whether propensities come from a model instead of the logging policy.
    """

    features: Array
    rewards: Array
    reward_range: tuple[float, float]
    name: str
    expected: Array | None = None
    estimated: bool = False

    kind: ClassVar[str]
    decide: ClassVar[Decide]
    """Draws the logged choices of a round; see `collect`."""
    by_candidate: ClassVar[bool] = False
    """Whether a logging policy is a share of every candidate."""
    estimators: ClassVar[Mapping[str, Any]]
    """Estimators by name; each maps `ingredients` to `Terms`."""
    usual: ClassVar[tuple[str, ...]]
    """Default estimators."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of further options of `ingredients`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        LOGS[cls.kind] = cls

    @classmethod
    def from_arrays(cls, *arrays: Any, **named: Any) -> Self:
        """Return the log of these arrays or lists, in the order of the attributes or by name.

        Raises:
            ParameterError: If an array has a wrong shape or a value out of range; the message
                names the first bad round.
        """
        return cls(*arrays, **named)

    def _keep(self, **checked: Any) -> None:
        """Replace attributes by their checked values."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    @abstractmethod
    def of_rounds(cls, made: Problem, c: Columns, least: float | None, name: str) -> Self:
        """Return the log of `collect`'s columns by name, with the smallest propensity."""

    @classmethod
    def from_problem(
        cls, problem: Problem | str, rounds: int, seed: int = 0, **options: Any
    ) -> Self:
        """Run a problem of this log's kind under a logging policy and return the log.

        Args:
            problem: The problem, or an environment id.
            rounds: Rounds to log, at least 2.
            seed: Seed of the replicate; it fixes the hidden parameters.
            **options: See `collect`: `behaviour` (the logging policy, uniform by default), `skip`
                (rounds before the log, for example those that a policy was trained on),
                parameters of the environment.

        Raises:
            ParameterError: If the problem is of another kind.
        """
        kind = make_problem(problem).kind if isinstance(problem, str) else problem.kind
        if kind != cls.kind:
            raise ParameterError(f"a {cls.__name__} is made of a {cls.kind} problem, not {kind}")
        (log,) = collect(problem, rounds, [seed], **options)
        return log  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.rewards)

    def select(self, rounds: Sequence[int] | slice | Array) -> Self:
        """Return the log of some of the rounds, e.g. ``log.select(slice(0, 1000))``.

        Raises:
            ParameterError: If fewer than two rounds remain.
        """
        chosen: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                chosen[name] = value[rounds]
            elif hasattr(value, "select"):
                chosen[name] = value.select(rounds)
        return replace(self, **chosen)  # type: ignore[type-var]

    @abstractmethod
    def target(self, policy: Any, samples: int) -> Any:
        """Return the choices of a policy in every round, from an agent or from arrays."""

    @abstractmethod
    def ingredients(
        self, target: Any, names: Sequence[str], q: ArrayLike | None, model: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """Return the input of `estimators`, from the target policy's choices.

        Args:
            target: See `target`.
            names: The estimators.
            q: A model's predictions. If None and needed, a model is fitted.
            model: ``ridge``, ``folds`` and ``seed`` of `estimators.cross_fitted`.
            options: Values of some `options`.
        """

    def inverse_propensities(self) -> tuple[Array, float, str] | None:
        """Return 1/p of the rounds ``(n,)``, its expected mean and what that counts.

        None if the expected mean is unknown.
        """
        return None

    def context(self, i: int | Array, t: int) -> Context:
        """Return round i, or one round per replicate, as an agent sees it at its round t."""
        rows = np.atleast_1d(i)
        held = (getattr(self, name, None) for name in Context._fields[1:])
        return Context(t, *(None if part is None else part[rows] for part in held))  # type: ignore[arg-type]


def answers(
    agent: Agent,
    logs: Sequence[Log],
    samples: int,
    asking: Callable[[Agent, int, int], Ask] = frozen_choices,
) -> Iterator[Array]:
    """Yield the choices of a frozen agent in every round of its replicates' logs.

    Args:
        agent: A trained agent of one replicate per log. It is copied and observes no reward.
        logs: Logs of one length.
        samples: Choices per round of a random policy; a deterministic policy chooses once.
        asking: `frozen_choices`, or `frozen_shares`.

    Yields:
        Per round its actions ``(samples, B, ...)``, or its shares ``(B, m)``.
    """
    ask = asking(agent, len(logs), samples)
    t = len(logs[0])
    for i in range(t):
        yield ask(Context.join(t, [log.context(i, t) for log in logs]))
