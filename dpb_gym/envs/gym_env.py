"""The Gymnasium environments: `BanditEnv` and `BanditVectorEnv`, which share a batch core."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dpb_gym import validation
from dpb_gym.envs.core import Core, lane, only
from dpb_gym.envs.rendering import MODES
from dpb_gym.errors import HorizonExceeded, ParameterError, shown
from dpb_gym.problems.base import Ahead, Array, Instance, Outcome, Problem
from dpb_gym.streams import check_seed

LIST = "_list"
"""Suffix of the render modes that return all rounds since the last call."""


class _Specified:
    """Part of both environments: a spec that states the horizon and can be written as JSON."""

    core: Core
    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec; its ``max_episode_steps`` is the horizon if none is given."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            # Gymnasium adds a `TimeLimit` if the spec that it passes gets a limit.
            spec = copy.copy(spec)
            spec.kwargs = {name: _plain(value) for name, value in spec.kwargs.items()}
            if spec.max_episode_steps is None:
                spec.max_episode_steps = self.core.problem.horizon
        self._spec = spec


def _plain(value: Any) -> Any:
    """Return arrays and NumPy numbers as lists and Python numbers, also inside of lists and dicts.

    Other values are returned as they are.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    # a subclass, such as a named tuple, may be an argument with a meaning of its own
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {key: _plain(part) for key, part in value.items()}
    return value


class BanditEnv(_Specified, gymnasium.Env[Any, Any]):
    """A bandit problem as a Gymnasium environment; make it with ``gymnasium.make``.

    An episode is one replicate of `horizon` rounds, then truncated; the last observation repeats
    the last customer's. ``reset(seed=s)`` starts the replicate that the harness calls seed s.
    ``reset()`` starts a new one (new hidden parameters) from the same seed. The reward is the
    realised revenue or reward. ``info`` contains:

    - ``t``, the round;
    - ``available``, the mask of items for the next customer, where availability varies;
    - ``choice`` (assortment: position in the offered slate, -1 for none; slates of the other
      action modes are in ascending item order), ``demand`` (pricing) or ``observed``
      (rejection replay);
    - ``expected_reward``, ``oracle_reward`` and ``regret`` of the action.

    With a `delay`, reward, choice, demand and observed belong to the response that arrives, that
    of round ``origin`` (0 and no reward where ``arrived`` is False). With a `stock`, ``left`` is
    the remaining stock, ``regret`` is relative to the season's optimum, and ``oracle_reward`` is
    ``expected_reward`` + ``regret``.

    Args:
        env_id: Registered id.
        render_mode: ``"ansi"`` (a table of the last round) or ``"rgb_array"`` (a picture of it
            and of the regret so far). Pictures are not part of the observation.
            ``gymnasium.make(..., render_mode="human")`` shows them in a window, with the extra
            ``render``.
        **kwargs: Parameters of the problem, ``obs_mode`` (``"flat"`` or ``"dict"``), and
            ``action_mode`` or ``n_prices`` where they apply.

    Raises:
        ParameterError: If a parameter is unknown or out of range.
    """

    metadata = {"render_modes": list(MODES), "render_fps": 4}  # noqa: RUF012

    def __init__(self, env_id: str, render_mode: str | None = None, **kwargs: Any) -> None:
        self.core = Core(env_id, 1, render_mode, kwargs)
        self.render_mode = render_mode
        self.observation_space = self.core.observations.space
        self.action_space = self.core.actions.space
        self._episode = -1
        self._done = True
        self._t = 0
        self._ahead: Ahead | None = None
        self._observations: Any = None

    @property
    def problem(self) -> Problem:
        """The problem's public mathematics; holds no hidden state."""
        return self.core.problem

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Non-negative replicate seed; by default the next episode of the last one.
            options: None are defined.
        """
        if seed is not None:
            check_seed(seed)
        super().reset(seed=seed)
        self._episode = 0 if seed is not None else self._episode + 1
        self.core.start([0], [int(self.np_random_seed)], [self._episode])
        self._done, self._t, self._ahead = False, 1, None
        observation = self._observe(self.core.instance)
        blank = {name: only(value) for name, value in self.core.blank_infos().items()}
        return observation, self._with_mask(blank)

    def _observe(self, instance: Instance) -> Any:
        """Return the current observation; observations of several rounds are encoded at once."""
        ahead = self._ahead
        if ahead is None or self._t >= ahead.end:
            if instance.left is not None:
                return lane(self.core.observe(), 0)
            ahead = self._ahead = instance.ahead(self._t)
            self._observations = self.core.observations.encode(ahead.context)
        return lane(self._observations, self._t - ahead.first)

    def action_masks(self) -> Array:
        """Return the permitted actions for the current customer, as sb3-contrib reads them.

        Returns:
            Bool, one entry per action of a `Discrete` space; the concatenated masks of a
            `MultiDiscrete` or `MultiBinary` space.

        Raises:
            ParameterError: If the action space has real numbers.
            HorizonExceeded: Before the first reset.
        """
        self.core.instance  # noqa: B018 (raises before the first reset)
        available = self._with_mask({}).get("available")
        if available is None:
            facts = self.core.problem.info
            available = np.ones(facts.n_items or facts.n_candidates or 1, bool)
        return self.core.actions.permitted(available)

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        """Add the availability mask of the customer of the last observation."""
        if not self.core.limited:
            return info
        if self._ahead is None:
            return info | {name: value[0] for name, value in self.core.coming().items()}
        if self._ahead.context.available is not None:
            info["available"] = self._ahead.context.available[self._t - self._ahead.first].copy()
        return info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one round.

        Raises:
            ActionError: If the action has a wrong shape, dtype or range; the round is not
                played and may be tried again.
            HorizonExceeded: If the episode is over.
        """
        core = self.core
        instance = self.core.instance
        if self._done:
            raise HorizonExceeded("the episode is over: call reset() before step()")
        decoded = core.actions.decode(action)
        ahead = self._ahead
        t = self._t
        if ahead is None:
            round_ = instance.round()
            feedback, expected, lost = instance.respond(decoded)
            mean = expected.item()
            regret = lost.item()
            best = mean + regret
        else:
            round_ = ahead.round(t)
            feedback, expected = core.problem.respond(instance.hidden, round_, decoded)
            mean = expected.item()
            best = ahead.values[t - ahead.first]
            regret = best - mean if best > mean else 0.0
        info: dict[str, Any] = {"t": t}
        if feedback.observed is not None and not feedback.observed[0]:
            regret = 0.0
        for screen in core.screens:
            screen.show(round_.context, decoded, feedback, regret)
        if core.arrivals is not None:
            feedback = core.deliver(feedback)
            info["arrived"] = bool(core.arrivals.arrived[0])
            info["origin"] = int(core.arrivals.origin[0])
        if core.layers:
            outcome = Outcome(feedback, expected, np.array([regret]))
            rewards, infos = core.step_results(decoded, outcome, np.ones(1, bool))
            info = {name: only(value) for name, value in infos.items()}
            reward = rewards.item()
        else:
            reward = feedback.reward.item()
            if core.response is not None:
                answer = getattr(feedback, core.response)
                info[core.response] = answer.item() if answer.ndim == 1 else answer[0]
            if core.partial:
                assert feedback.observed is not None
                info["observed"] = feedback.observed.item()
            info["expected_reward"], info["oracle_reward"], info["regret"] = mean, best, regret
        if t < core.problem.horizon:
            instance.advance()
            self._t = t + 1
        else:
            self._done = True
        seen = self._observe(instance)
        return seen, reward, False, self._done, self._with_mask(info)

    def render(self) -> Any:
        """Render the last round, or the first customer, in `render_mode`."""
        shown = self.core.render()
        return None if shown is None else shown[0]


class BanditVectorEnv(_Specified, VectorEnv[Any, Any, Array]):
    """A vector environment of B replicates; make it with ``gymnasium.make_vec``.

    Lane i equals a single `BanditEnv` seeded with ``seed + i``, autoreset included, bit for
    bit. ``reset(options={"reset_mask": mask})`` restarts some lanes.

    Args:
        env_id: Registered id.
        num_envs: B.
        autoreset_mode: One of Gymnasium's `AutoresetMode`, next-step by default.
        render_mode: As for `BanditEnv`; `render` returns one picture or table per lane, or with
            ``"rgb_array_list"`` and ``"ansi_list"`` those of all rounds since the last call.
        max_episode_steps: Rounds after which episodes are truncated, as by Gymnasium's `TimeLimit`;
            the horizon by default.
        **kwargs: As for `BanditEnv`.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.num_envs = validation.integer("num_envs", num_envs, 1)
        mode = getattr(autoreset_mode, "value", autoreset_mode)
        modes = [known.value for known in AutoresetMode]
        self.autoreset_mode = AutoresetMode(validation.choice("autoreset_mode", mode, modes))
        lists = [f"{name}{LIST}" for name in MODES]
        self.metadata = {
            **BanditEnv.metadata,
            "render_modes": [*MODES, *lists],
            "autoreset_mode": self.autoreset_mode,
        }
        self._collects = isinstance(render_mode, str) and render_mode in lists
        shown = str(render_mode).removesuffix(LIST) if self._collects else render_mode
        self.core = Core(env_id, self.num_envs, shown, kwargs)
        self.render_mode = render_mode
        self._frames: list[list[Any]] = [[] for _ in range(self.num_envs)]
        horizon = self.core.problem.horizon
        limit = validation.optional(validation.integer, "max_episode_steps", max_episode_steps, 1)
        self._longest = min(horizon, limit or horizon)
        self.single_observation_space = self.core.observations.space
        self.single_action_space = self.core.actions.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seeds: list[int] = []
        self._episodes: list[int] = []
        self._done = np.ones(self.num_envs, bool)

    @property
    def problem(self) -> Problem:
        """The problem's public mathematics; holds no hidden state."""
        return self.core.problem

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Replicate seeds of the lanes."""
        return tuple(self._seeds)

    def _choose_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            return [check_seed(seed) + i for i in range(self.num_envs)]
        listed = isinstance(seed, (list, tuple, range)) or getattr(seed, "ndim", 0) == 1
        seeds = list(seed) if listed else []  # type: ignore[arg-type]
        if len(seeds) != self.num_envs:
            raise ParameterError(
                f"seed must be an integer or {self.num_envs} integers or None, got {shown(seed)}"
            )
        return [None if s is None else check_seed(s) for s in seeds]

    def _restart(self, lanes: Sequence[int], seeds: list[int | None]) -> None:
        if not self._seeds:
            self._seeds, self._episodes = [0] * self.num_envs, [-1] * self.num_envs
        for i in lanes:
            given = seeds[i]
            if given is not None:
                self._seeds[i], self._episodes[i] = given, 0
            else:
                if self._episodes[i] < 0:
                    self._seeds[i] = int(seeding.np_random(None)[1])
                self._episodes[i] += 1
            self._done[i] = False
        self.core.start(lanes, self._seeds, self._episodes)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes.

        Args:
            seed: An integer s gives lane i the seed s + i; or one seed (or None) per lane.
            options: ``reset_mask``: boolean array ``(num_envs,)`` of the lanes to start;
                all by default.
        """
        seeds = self._choose_seeds(seed)
        lanes: Sequence[int] = range(self.num_envs)
        if options is not None and not isinstance(options, dict):
            raise ParameterError(f"options must be a dictionary or None, got {shown(options)}")
        if options is not None and "reset_mask" in options:
            mask = options["reset_mask"]
            valid = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
            if not valid or mask.shape != (self.num_envs,) or not mask.any():
                raise ParameterError(
                    f"reset_mask must be a boolean array of shape ({self.num_envs},) with at "
                    f"least one True, got {shown(mask)}"
                )
            if not self._seeds and not mask.all():
                raise ParameterError("the first reset must start every lane")
            lanes = np.flatnonzero(mask).tolist()
        self._restart(lanes, seeds)
        infos: dict[str, Any] = {}
        for i in lanes:
            infos = self._add_info(infos, self._blank(i), i)
            self._frames[i] = []
        self._collect()
        return self.core.observe(), self._with_mask(infos)

    def _collect(self) -> None:
        """Store the picture or table of every lane, for render modes that return lists."""
        if self._collects:
            for frames, shown in zip(self._frames, self.core.render() or ()):
                frames.append(shown)

    def _blank(self, i: int) -> dict[str, Any]:
        """Return the info of a reset in one lane."""
        return {name: only(value, i) for name, value in self.core.blank_infos().items()}

    def _with_mask(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Add the availability masks of the customers of the last observations."""
        for name, value in self.core.coming().items():
            infos[name] = value
            infos[f"_{name}"] = np.ones(self.num_envs, bool)
        return infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play one round in every lane.

        Lanes whose episode ended are handled as `autoreset_mode` says.

        Raises:
            ActionError: If an action has a wrong shape, dtype or range; nothing is played.
            HorizonExceeded: Before the first reset, or if autoreset is disabled and a
                lane's episode is over.
        """
        core = self.core
        instance = self.core.instance
        resetting = self._done
        waiting = bool(resetting.any())
        if waiting and self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise HorizonExceeded(
                f"the episodes of lanes {np.flatnonzero(resetting).tolist()} are over: reset them"
            )
        decoded = self._decode(actions, resetting)
        outcome = core.respond(decoded, resetting)
        playing = ~resetting
        if core.arrivals is not None:
            outcome = outcome._replace(feedback=core.deliver(outcome.feedback, playing))
        reward, values = core.step_results(decoded, outcome, playing)
        self._collect()
        ended = playing & (instance.t >= self._longest)
        self._done = ended.copy()
        infos: dict[str, Any] = {}
        if not (waiting or ended.any()):
            instance.advance()
            for key, array in values.items():
                infos[key], infos[f"_{key}"] = array, playing.copy()
            seen = core.observe()
            return seen, reward, ~playing, ended, self._with_mask(infos)
        # an episode that a limit ends before the horizon still shows its next customer
        moving = playing & (instance.t < core.problem.horizon)
        if moving.any():
            instance.advance(moving)
        reward = np.where(resetting, 0.0, reward)
        last_offer = self.core.coming()
        final: Any = core.observe() if ended.any() else None
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        if resetting.any():
            self._restart(np.flatnonzero(resetting).tolist(), [None] * self.num_envs)
        for i in range(self.num_envs):
            started = self._blank(i) if resetting[i] else None
            info = started or {k: only(v, i) for k, v in values.items()}
            if same_step and ended[i]:
                info |= {name: value[i] for name, value in last_offer.items()}
                infos = self._add_info(infos, {"final_obs": lane(final, i), "final_info": info}, i)
                self._restart([i], [None] * self.num_envs)
                info = self._blank(i)
            infos = self._add_info(infos, info, i)
        seen = core.observe()
        return seen, reward, np.zeros(self.num_envs, bool), ended, self._with_mask(infos)

    def _decode(self, actions: Any, ignored: Array) -> Array:
        """Return the problem's actions ``(num_envs, ...)``; the best where `ignored` (in reset)."""
        if not ignored.any():
            return self.core.actions.decode(actions, self.num_envs)
        decoded = self.core.instance.best_action().copy()
        if not ignored.all():
            rows = len(actions) if isinstance(actions, (list, tuple, np.ndarray)) else -1
            if rows != self.num_envs:
                self.core.actions.decode(actions, self.num_envs)
            playing = np.flatnonzero(~ignored)
            played = self.core.actions.decode([actions[i] for i in playing], len(playing))
            decoded = decoded.astype(played.dtype)
            decoded[~ignored] = played
        return decoded

    def render(self) -> tuple[Any, ...] | None:
        """Render the last round of every lane in `render_mode`.

        With ``"rgb_array_list"`` or ``"ansi_list"``: all rounds since the last call or reset.
        """
        if self._collects:
            collected = tuple(self._frames)
            self._frames = [[] for _ in range(self.num_envs)]
            return collected
        shown = self.core.render()
        return None if shown is None else tuple(shown)
