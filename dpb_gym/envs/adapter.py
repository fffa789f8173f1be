"""Adapter from third-party Gymnasium environments to problems, for use in the harness.

The environment must follow the info contract. Actions and observations have the form of those of
dpb-gym's environments. A step's ``info`` contains ``expected_reward`` of the action and
``oracle_reward`` of the best one; ``choice`` or ``demand`` where the kind has it; ``observed``
where a round may return nothing. The next customer does not depend on the action.
``copy.deepcopy`` copies the environment, random state included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from dpb_gym import validation
from dpb_gym.errors import AgentError, HorizonExceeded, ParameterError, shown
from dpb_gym.problems.base import Array, Context, Feedback, Instance, Problem, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import check_seed

REQUIRED = ("expected_reward", "oracle_reward")


class AdaptedProblem(Problem):
    """Problem that steps a registered `gymnasium.Env` of a known kind.

    Args:
        env: Id of the environment in Gymnasium's registry.
        kind: Name of its `Kind`: an assortment takes K item indices (`MultiDiscrete`), a price is a
            `Box` of shape (1,) on [0, 1], a recommendation is `Discrete`. Observations are a `Box`
            of features (in C order, then revenues), or a `Dict` with ``features`` and, for
            assortments, ``revenues``.
        horizon: Rounds T; the id's ``max_episode_steps`` by default.
        reward_range: Lowest and highest reward, which releasers clip to.
        demand: Pricing: ``"logistic"`` for demands of 0 or 1, else ``"gaussian"``.
        zeta: Pricing: link scale that agents assume for logistic demand.
        partial_feedback: Whether ``info["observed"]`` may be False.
        **kwargs: Parameters of the environment.

    Raises:
        ParameterError: If the id is unknown, or the environment does not follow the contract.
    """

    def __init__(
        self,
        env: str,
        kind: str,
        horizon: int | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        demand: str = "logistic",
        zeta: float = 1.0,
        partial_feedback: bool = False,
        **kwargs: Any,
    ) -> None:
        if env not in gymnasium.registry:
            raise ParameterError(f"no environment {shown(env)} is registered with Gymnasium")
        steps = gymnasium.registry[env].max_episode_steps if horizon is None else horizon
        if steps is None:
            raise ParameterError(f"{env} has no max_episode_steps: give a horizon")
        self.env_id, self._kwargs, self._kind = env, kwargs, kind_of(kind)
        self.horizon = validation.integer("horizon", steps, 2)
        made = self.make()
        self.space: Any = made.action_space
        sizes = self._kind.sizes(self.space)
        if sizes is None:
            raise ParameterError(f"{env}: {self.space} is no action space of {kind}")
        known: dict[str, Any] = {**sizes}
        if self._kind.response == "demand":
            known["demand"] = validation.choice("demand", demand, ("logistic", "gaussian"))
            if demand == "logistic":
                known["zeta"] = validation.real("zeta", zeta, 0.0, open_low=True)
        if self._kind.revenues:
            known["equal_revenues"] = False
        ends = validation.span("reward_range", reward_range)
        partial = validation.flag("partial_feedback", partial_feedback)
        info = ProblemInfo(kind, self.horizon, 2, ends, partial_feedback=partial, **known)
        self.dim = self._dim(made.observation_space, info)
        self.info = replace(info, dim=self.dim)
        made.close()

    def make(self) -> gymnasium.Env[Any, Any]:
        """Return a new copy of the environment."""
        steps = {"max_episode_steps": self.horizon}
        try:
            # the contract's checks replace Gymnasium's and name missing keys
            return gymnasium.make(self.env_id, disable_env_checker=True, **steps, **self._kwargs)
        except TypeError as error:
            raise ParameterError(f"{self.env_id}: {error}") from None

    def _dim(self, space: Any, info: ProblemInfo) -> int:
        """Return the dimension d that matches the observation space; set `feature_bound`."""
        *vectors, width = self._kind.feature_shape(info)
        count = math.prod(vectors)
        box: Any = space
        if isinstance(space, gymnasium.spaces.Dict):
            box = space.spaces.get("features")
        size = 0 if box is None or box.shape is None else math.prod(box.shape)
        if box is space and self._kind.revenues:
            size -= count
        if size <= 0 or size % count:
            raise ParameterError(
                f"{self.env_id}: observations must hold {count} feature vectors of one length"
                f"{' and as many revenues' if self._kind.revenues else ''}, got {space}"
            )
        self.feature_bound = float(max(abs(box.low.min()), abs(box.high.max())))
        return size // count + info.dim - width

    def context(self, t: int, observations: Sequence[Any]) -> Context:
        """Return the context of a round from one observation per replicate."""
        shape = self._kind.feature_shape(self.info)
        size = math.prod(shape)
        parts = ("features", *["revenues"] * self._kind.revenues)
        named = ([o[p] for p in parts] if isinstance(o, dict) else [o] for o in observations)
        rows = np.array([np.concatenate([np.ravel(p) for p in o]) for o in named], np.float32)
        features = np.ascontiguousarray(rows[:, :size]).reshape(len(rows), *shape)
        revenues = np.ascontiguousarray(rows[:, size:]) if self._kind.revenues else None
        return Context(t, features, revenues=revenues)

    def encode(self, action: Array) -> Any:
        """Return one replicate's action in the form of the environment's action space."""
        return self._kind.encode(action, self.space)

    def instance(self, seeds: Sequence[int], episodes: Sequence[int] | None = None) -> Instance:
        return AdaptedInstance(self, seeds, episodes)

    def _hidden(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ParameterError(
            f"{self.env_id} is a third-party environment: only its steps are known"
        )

    draw_hidden = fields = make_round = respond = best_action = _hidden


class AdaptedInstance(Instance):
    """B copies of an environment; every `respond` steps a deep copy of them."""

    def __init__(
        self, problem: AdaptedProblem, seeds: Sequence[int], episodes: Sequence[int] | None
    ) -> None:
        self.problem: AdaptedProblem = problem
        self.seeds = [check_seed(seed) for seed in seeds]
        self.replicates = len(self.seeds)
        self.episodes = list(episodes or [0] * len(self.seeds))
        self.hidden = {}
        self.t = np.ones(len(self.seeds), np.int64)
        self._envs = [problem.make() for _ in self.seeds]
        self._observations = [env.reset(seed=s)[0] for env, s in zip(self._envs, self.seeds)]
        for i, episode in enumerate(self.episodes):
            for _ in range(episode):
                self._observations[i] = self._envs[i].reset()[0]
        kind = kind_of(problem.kind)
        zeros = np.zeros((1, *kind.action_shape(problem.info)))
        self._fixed_action = kind.random(problem.info, zeros)[0]
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Step the copies with a fixed action; the next round does not depend on the action."""
        self._next = [self._play(i, self._fixed_action) for i in range(len(self._envs))]

    def _play(self, i: int, action: Array) -> tuple[Any, Any, float, dict[str, Any]]:
        name = self.problem.env_id
        try:
            env = deepcopy(self._envs[i])
        except Exception as error:
            raise ParameterError(f"{name} cannot be copied by copy.deepcopy: {error}") from error
        observation, reward, terminated, truncated, info = env.step(self.problem.encode(action))
        response = kind_of(self.problem.kind).response
        for key in (*REQUIRED, *([response] if response else [])):
            if key not in info:
                raise ParameterError(
                    f"{name} does not follow the info contract: step() returned no "
                    f"info[{key!r}], got {', '.join(map(repr, info)) or 'an empty info'}"
                )
        expected, best = (validation.real(f"{name}: info[{key!r}]", info[key]) for key in REQUIRED)
        if expected > best + 1e-9 * max(1.0, abs(best)):
            raise ParameterError(
                f"{name} does not follow the info contract: expected_reward {expected} of an "
                f"action exceeds oracle_reward {best}"
            )
        if (terminated or truncated) and self.t[i] < self.problem.horizon:
            raise ParameterError(
                f"{name} ended its episode in round {self.t[i]} of {self.problem.horizon}"
            )
        return env, observation, float(reward), info

    def saved(self) -> dict[str, Any] | None:
        return None  # the state of another package's environment is any object

    def coming(self, most: int) -> list[Context]:
        return [self.context()]

    def context(self) -> Context:
        return self.problem.context(int(self.t[0]), self._observations)

    def round(self) -> NoReturn:
        self.problem._hidden()

    def oracle(self) -> tuple[Array, Array]:
        """Return an empty array, as the best action is unknown, and its expected reward."""
        values = [info["oracle_reward"] for *_, info in self._next]
        return np.empty(0), np.array(values, np.float64)

    def best_action(self) -> Array:
        raise AgentError(
            f"{self.problem.env_id} reports the reward of its best action, not the action; the "
            "agent 'oracle' cannot play it"
        )

    def answer(self, action: Any) -> tuple[Feedback, Array]:
        checked = self.problem.check_action(action, len(self.seeds))
        played = [self._play(i, checked[i]) for i in range(len(checked))]
        for (_, observation, *_), (_, expected_next, *_) in zip(played, self._next):
            if not data_equivalence(observation, expected_next):
                raise ParameterError(
                    f"{self.problem.env_id} is no bandit: the next customer depends on the action"
                )
        infos = [info for *_, info in played]
        for slate, info in zip(checked, infos):
            if info.get("choice", -1) >= 0:
                item = self.problem.encode(slate)[info["choice"]]
                info["choice"] = int((slate == item).argmax())
        known = {
            key: np.array([info[key] for info in infos])
            for key in ("choice", "demand", "answer", "observed")
            if key in infos[0]
        }
        expected = np.array([info["expected_reward"] for info in infos], np.float64)
        return Feedback(np.array([reward for _, _, reward, _ in played]), **known), expected

    def advance(self, lanes: Array | None = None) -> None:
        if self.t[0] >= self.problem.horizon:
            raise HorizonExceeded(f"the horizon of {self.problem.horizon} rounds is over")
        self._envs = [env for env, *_ in self._next]
        self._observations = [observation for _, observation, *_ in self._next]
        self.t += 1
        self._look_ahead()
