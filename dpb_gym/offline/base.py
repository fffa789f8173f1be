"""What every log has, whatever it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.offline.collecting import LOGS, Columns, collect
from dpb_gym.offline.targets import Ask, frozen_choices
from dpb_gym.problems.base import Array, Context, Problem


class Log(ABC):
    """What every log has: its arrays are checked and copied when it is made, and read-only.

    Attributes:
        features: float32, what the policy saw, n rounds first.
        rewards: ``(n,)`` within `reward_range`. Private data of the logged users.
        reward_range: Declared lowest and highest reward; never read off the data.
        name: For titles and messages.
        expected: Expected reward of everything that could have been chosen, None if not known.
        estimated: Whether propensities come from a model instead of the logging policy.
    """

    features: Array
    rewards: Array
    reward_range: tuple[float, float]
    name: str
    expected: Array | None = None
    estimated: bool = False

    kind: ClassVar[str]
    estimators: ClassVar[Mapping[str, Any]]
    """Estimators by name: from `ingredients` to `Terms`."""
    usual: ClassVar[tuple[str, ...]]
    """Those that are computed if none is named."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of further arguments that `ingredients` takes."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        LOGS[cls.kind] = cls

    @classmethod
    def from_arrays(cls, *arrays: Any, **named: Any) -> Self:
        """The log of these arrays (or lists), in the order of the attributes or by name.

        Raises:
            ParameterError: If an array has a wrong shape or a value out of range; the message
                names the first bad round.
        """
        return cls(*arrays, **named)

    def _keep(self, **checked: Any) -> None:
        """Keeps what was checked in the place of what was given."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    @abstractmethod
    def of_rounds(cls, made: Problem, c: Columns, least: float | None, name: str) -> Self:
        """The log of what `collect` saw: columns by name, and the least propensity."""

    @classmethod
    def from_problem(
        cls, problem: Problem | str, rounds: int, seed: int = 0, **options: Any
    ) -> Self:
        """Runs a problem of this log's kind under a logging policy.

        Args:
            problem: The problem, or an environment id.
            rounds: Rounds to log, at least 2.
            seed: Seed of the replicate: it fixes the hidden parameters, as everywhere.
            **options: See `collect`: `behaviour` (the logging policy, uniform by default), `skip`
                (rounds to pass over first, so that a policy trained on the first rounds of the
                same replicate is evaluated on later ones), parameters of the environment.

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
        """The log of some of the rounds, e.g. ``log.select(slice(0, 1000))``.

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
        """What a policy would have done in every round, from an agent or from arrays."""

    @abstractmethod
    def ingredients(
        self, target: Any, names: Sequence[str], q: ArrayLike | None, model: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Any:  # fmt: skip
        """What `estimators` need to estimate the target's value.

        Args:
            target: See `target`.
            names: The estimators.
            q: A model's predictions; a fitted one if it is None and needed.
            model: How that is fitted: ``ridge``, ``folds``, ``seed`` of `models.cross_fitted`.
            options: Some of `options`.
        """

    def context(self, i: int | Array, t: int) -> Context:
        """Round i, or one for each replicate, as an agent sees it at its round t."""
        rows = np.atleast_1d(i)
        held = (getattr(self, name, None) for name in Context._fields[1:])
        return Context(t, *(None if part is None else part[rows] for part in held))  # type: ignore[arg-type]


def answers(
    agent: Agent,
    logs: Sequence[Log],
    samples: int,
    t: int | None = None,
    asking: Callable[[Agent, int, int], Ask] = frozen_choices,
) -> Iterator[Array]:
    """Asks a frozen agent about every round of its replicates' logs.

    Args:
        agent: A trained agent of one replicate per log; it is copied and never told a reward.
        logs: Logs of one length.
        samples: Answers per round of a random policy; one that always answers alike gives one.
        t: The round number that the agent is told; the length of the log by default.
        asking: `frozen_choices`, or `frozen_shares`.

    Yields:
        Per round its actions ``(samples, B, ...)``, or its shares ``(B, m)``.
    """
    ask = asking(agent, len(logs), samples)
    told = len(logs[0]) if t is None else validation.integer("t", t, 1)
    for i in range(len(logs[0])):
        yield ask(Context.join(told, [log.context(i, told) for log in logs]))
