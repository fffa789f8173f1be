"""A trusted curator as a wrapper: noisy sums of r x, batch after batch (RU, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorWrapper

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.feedback.infos import gather, has, put, without
from dpb_gym.feedback.lanes import ORACLE_KEYS, Layered, below, core_of, noise_generator
from dpb_gym.feedback.recode import chosen_features
from dpb_gym.privacy import (
    Budget,
    Composition,
    GaussianSum,
    Guarantee,
    Ledger,
    NoiseSource,
    Release,
    Segment,
    calibrate,
)
from dpb_gym.problems.base import Array


class _Desk:
    """The curator of one episode of one replicate.

    Args:
        seed: Seed of the replicate.
        episode: Its episode.
        plan: What is released.
    """

    def __init__(self, seed: int, episode: int, plan: _Plan) -> None:
        self._plan = plan
        self._rounds = 0
        self.ledger = Ledger(plan.budget, notion="central", unit="reward")
        self._sum = GaussianSum(
            plan.dim,
            1,
            clip=plan.bound,
            sigma=plan.sigma,
            noise=NoiseSource([noise_generator(seed, episode)]),
            ledger=self.ledger,
            what="reward sum of a batch",
        )

    def take(self, features: Array, reward: float, observed: bool) -> tuple[Array, bool]:
        """Ingests one round; returns the batch's noisy sum, or zeros while it is open."""
        direction = features[None] if observed else np.zeros((1, self._plan.dim))
        self._sum.add([reward], direction)
        self._rounds += 1
        if self._rounds % self._plan.batch:
            return np.zeros(self._plan.dim), False
        return self._sum.release()[0], True


class _Plan:
    """Noise and interval of the releases, from a budget."""

    def __init__(self, core: Any, budget: Budget, batch: int) -> None:
        info = core.problem.info
        if info.kind != "recommendation":
            raise ParameterError(f"sums of r x exist for recommendation, not for {info.kind}")
        self.budget = budget
        self.batch = validation.integer("batch", batch, 1)
        self.dim = info.dim
        self.bound = Segment(*info.reward_range)
        (self.sigma,) = calibrate(budget, Release(self.bound.sensitivity()))

    def desk(self, core: Any, i: int) -> _Desk:
        return _Desk(core.instance.seeds[i], core.instance.episodes[i], self)


class _Curated(Layered):
    # It sees responses and contexts raw; no other layer goes beneath or on top.
    covers = ("response", "context")
    _plan: _Plan

    @property
    def guarantee(self) -> Guarantee:
        """Central, for the reward of one round: contexts and actions count as public."""
        event = _Desk(0, 0, self._plan)._sum.event
        return Guarantee("central", "reward", "replace-one", Composition(parallel=((event,),)))


class CentralCurator(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, _Curated):
    """Agents see rewards only through noisy sums of r x over batches of rounds.

    Any agent that needs no more of the rewards than the sum of r x is private behind it.
    After every `batch` rounds ``info["released"]`` is True and ``info["response"]`` ``(d,)``
    is the batch's sum plus noise; in other rounds it is zero. Features x, clipped to the unit
    ball, are public: agents keep their own sum of x x'. The reward is always 0; the truth is in
    the attribute `truth`, for the harness. The rounds after the last full batch are never
    released. Every reward is in one batch, so the batches cost what one of them does.

    Args:
        env: A dpb-gym recommendation environment.
        budget: What one episode may spend.
        batch: Rounds between releases.

    Raises:
        ParameterError: If the environment is no recommendation or a parameter is out of range.
        BudgetError: If the budget is none.
    """

    def __init__(self, env: Any, budget: Budget, batch: int = 300) -> None:
        RecordConstructorArgs.__init__(self, budget=budget, batch=batch)
        self._core = core_of(env, vector=False)
        gymnasium.Wrapper.__init__(self, env)
        self.check_layers(env)
        self._plan = _Plan(self._core, budget, batch)
        self.truth: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._desk = self._plan.desk(self._core, 0)
        self.truth = {}
        return observation, info

    @property
    def ledger(self) -> Ledger:
        """The ledger of the current episode."""
        return self._desk.ledger

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        core = self._core
        if core.instance is None:
            return self.env.step(action)  # type: ignore[return-value]
        features = chosen_features(core, core.actions.decode(np.asarray(action)[None], 1))
        observation, reward, terminated, truncated, info = self.env.step(action)
        observed = bool(info.get("observed", True))
        response, released = self._desk.take(features[0], float(reward), observed)
        self.truth = {"reward": float(reward), **{k: info[k] for k in ORACLE_KEYS}}
        info = {k: v for k, v in info.items() if k not in ORACLE_KEYS}
        info["response"], info["released"] = response, released
        return observation, 0.0, terminated, truncated, info


class VectorCentralCurator(VectorWrapper, _Curated):
    """Vector twin of `CentralCurator`: every lane has a curator and a budget of its own."""

    def __init__(self, env: Any, budget: Budget, batch: int = 300) -> None:
        self._core = core_of(env, vector=True)
        super().__init__(env)
        self._mode: AutoresetMode = env.unwrapped.autoreset_mode
        self.check_layers(env)
        self._plan = _Plan(self._core, budget, batch)
        self._desks: list[_Desk | None] = [None] * self.num_envs
        self._episodes = [-1] * self.num_envs
        self._ended = np.zeros(self.num_envs, bool)
        self.truth: dict[str, Array] = {}

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        observation, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for i in np.flatnonzero(mask):
            self._open(int(i))
        self._ended[mask] = False
        self.truth = {}
        return observation, infos

    def _open(self, i: int) -> None:
        self._desks[i] = self._plan.desk(self._core, i)
        self._episodes[i] = self._core.instance.episodes[i]

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledgers of the lanes' current episodes."""
        return [desk.ledger for desk in self._desks if desk is not None]

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        core = self._core
        if core.instance is None:
            return self.env.step(actions)
        resetting = self._ended
        if self._mode is not AutoresetMode.NEXT_STEP:
            resetting = np.zeros_like(self._ended)
        played = ~resetting
        decoded = self.env.unwrapped.decode_actions(actions, resetting)  # type: ignore[attr-defined]
        features = chosen_features(core, decoded)
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        observed = np.ones(self.num_envs)
        if has(infos, "observed"):
            observed = gather(infos, "observed", self.num_envs)
        responses = np.zeros((self.num_envs, self._plan.dim))
        released = np.zeros(self.num_envs, bool)
        for i in np.flatnonzero(played):
            desk = self._desks[int(i)]
            assert desk is not None
            responses[i], released[i] = desk.take(features[i], rewards[i], bool(observed[i]))
        self.truth = {**below(self.env), "reward": np.array(rewards, dtype=np.float64)}
        self.truth |= {k: gather(infos, k, self.num_envs) for k in ORACLE_KEYS if has(infos, k)}
        infos = without(infos, ORACLE_KEYS)
        put(infos, "response", responses, played)
        put(infos, "released", released, played)
        for lane, episode in enumerate(core.instance.episodes):
            if episode != self._episodes[lane]:
                self._open(lane)
        self._ended = np.asarray(terminations | truncations)
        if self._mode is AutoresetMode.SAME_STEP:
            self._ended = np.zeros_like(self._ended)
        return observation, np.zeros(self.num_envs), terminations, truncations, infos
