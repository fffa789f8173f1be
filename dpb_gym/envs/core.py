"""Shared core of the single and the vector environment: replicates, observations, delays."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.envs.actions import ActionMode
from dpb_gym.envs.registration import environment
from dpb_gym.envs.rendering import MODES, Screen
from dpb_gym.errors import HorizonExceeded
from dpb_gym.problems.base import Array, Context, Feedback, Instance, Outcome, Problem
from dpb_gym.problems.delay import PLACEHOLDERS, Arrivals, Delay, DelayBuffer
from dpb_gym.problems.kinds import kind_of

OBS_MODES = ("flat", "dict")


class Observations:
    """Conversion of contexts to observations, for a batch of replicates.

    ``"flat"``: the features in C order, followed by the revenues for assortments.
    ``"dict"``: ``features`` (assortment ``(N, d)``, pricing ``(d - 1,)``, recommendation
    ``(n_candidates, d)``), ``revenues`` ``(N,)`` for assortments, ``user`` ``(1,)``
    where users are identified, and the mask ``available`` where availability varies. Flat
    observations omit user and mask; the mask is also in ``info``.

    Attributes:
        space: Gymnasium space of a single observation.
    """

    def __init__(self, problem: Problem, obs_mode: str = "flat") -> None:
        self.mode = validation.choice("obs_mode", obs_mode, OBS_MODES)
        info = problem.info
        kind = kind_of(info.kind)
        shape = kind.feature_shape(info)
        bound = np.float32(problem.feature_bound)
        parts: dict[str, Any] = {"features": gymnasium.spaces.Box(-bound, bound, shape, np.float32)}
        if kind.revenues:
            least, most = info.reward_range
            # Revenues that are all 0 would make an empty box.
            ends = np.float32(least), np.float32(most if least < most else 1.0)
            parts["revenues"] = gymnasium.spaces.Box(*ends, shape[:1], np.float32)
        self._user = info.max_interactions is not None
        self.space: gymnasium.Space[Any]
        if self.mode == "dict":
            if self._user:
                parts["user"] = gymnasium.spaces.Box(0, problem.horizon, (1,), np.int64)
            if info.masked:
                parts["available"] = gymnasium.spaces.MultiBinary(shape[0])
        named = gymnasium.spaces.Dict(parts)
        self.space = named if self.mode == "dict" else gymnasium.spaces.flatten_space(named)

    def encode(self, context: Context) -> Array | dict[str, Array]:
        """Return fresh arrays with leading axis B."""
        return encode(context, self.mode, self._user)


def encode(context: Context, mode: str, user: bool = True) -> Array | dict[str, Array]:
    """Return the observations of a context as fresh arrays with leading axis B.

    Args:
        context: The context.
        mode: ``"flat"`` or ``"dict"``; see `Observations`.
        user: Whether a dict has the user, if there is one.
    """
    named = {"features": context.features}
    if context.revenues is not None:
        named["revenues"] = context.revenues
    if mode == "flat":
        flat = [part.reshape(len(part), -1) for part in named.values()]
        return np.concatenate(flat, axis=1)
    if user and context.users is not None:
        named["user"] = context.users.astype(np.int64)[:, None]
    if context.available is not None:
        named["available"] = context.available.astype(np.int8)
    return {name: np.array(part) for name, part in named.items()}


def only(rows: Array, i: int = 0) -> Any:
    """Return one replicate's row; scalars as Python numbers."""
    return rows[i].item() if rows.ndim == 1 else rows[i].copy()


def lane(observation: Array | dict[str, Array], i: int) -> Any:
    """Return one replicate's observation."""
    if isinstance(observation, dict):
        return {name: value[i].copy() for name, value in observation.items()}
    return observation[i].copy()


class Core:
    """B replicates with an action mode and an observation mode.

    Only environments and feedback wrappers (`dpb_gym.feedback`) use it: the instance holds the
    hidden parameters, which no agent may see.

    Attributes:
        lanes: B.
        layers: Active feedback wrappers, innermost first; they privatise rewards and infos.
    """

    def __init__(
        self, env_id: str, count: int, render_mode: str | None, kwargs: dict[str, Any]
    ) -> None:
        validation.optional(validation.choice, "render_mode", render_mode, MODES)
        entry = environment(env_id)
        interface = {k: kwargs.pop(k) for k in entry.interface if k in kwargs}
        self.problem: Problem = entry.make_problem(**kwargs)
        self.observations = Observations(self.problem, interface.pop("obs_mode", "flat"))
        mode = kind_of(self.problem.kind).actions
        make = resolve_name(mode) if isinstance(mode, str) else mode
        self.actions: ActionMode = make(self.problem.info, **interface)
        self._instance: Instance | None = None
        self.lanes = count
        self.layers: tuple[Any, ...] = ()
        info = self.problem.info
        self.partial = info.partial_feedback
        self.limited = bool(info.masked) or info.stock is not None
        self.arrivals: Arrivals | None = None
        self._delay_buffer = DelayBuffer()
        self.response = kind_of(self.problem.kind).response
        self._render_mode = render_mode
        shown = 0 if render_mode is None else count
        self.screens = [Screen(self.problem, i) for i in range(shown)]

    @property
    def instance(self) -> Instance:
        """The running replicates.

        Raises:
            HorizonExceeded: Before the first reset.
        """
        if self._instance is None:
            raise HorizonExceeded("no episode has started: call reset() before the first step()")
        return self._instance

    def start(self, lanes: Sequence[int], seeds: list[int], episodes: list[int]) -> None:
        """Start the episodes of the given lanes."""
        delay = Delay.parse(self.problem.info.delay)
        if self._instance is None:
            self._instance = self.problem.instance(seeds, episodes)
            if delay is not None:
                self.arrivals = Arrivals(delay, self.problem.horizon, seeds, episodes)
        else:
            for i in lanes:
                self.instance.restart(i, seeds[i], episodes[i])
                if self.arrivals is not None:
                    self.arrivals.restart(i, seeds[i], episodes[i])
        for i in lanes:
            for layer in self.layers:
                layer.open(i, seeds[i], episodes[i])
            if self.screens:
                self.screens[i].show(self.instance.context())

    def respond(self, action: Array, ignored: Array | None = None) -> Outcome:
        """Return the outcome of the problem's actions; screens show it except where `ignored`."""
        outcome = self.instance.respond(action)
        for i, screen in enumerate(self.screens):
            if ignored is None or not ignored[i]:
                regret = float(outcome.regret[i])
                screen.show(self.instance.context(), action, outcome.feedback, regret)
        return outcome

    def render(self) -> list[Any] | None:
        """Return one picture or table per lane; without a render mode warn and return None."""
        if self._render_mode is None:
            gymnasium.logger.warn(
                "render() needs a render_mode: gymnasium.make(..., render_mode='rgb_array')"
            )
            return None
        return [getattr(screen, self._render_mode)() for screen in self.screens]

    def coming(self) -> dict[str, Array]:
        """Return availability and stock for the customers of the last observation, if limited."""
        if not self.limited:
            return {}
        # the stock reveals responses, which feedback wrappers privatise
        left = None if self.layers else self.instance.left
        limits = {"available": self.instance.context().available, "left": left}
        return {name: value.copy() for name, value in limits.items() if value is not None}

    def observe(self) -> Any:
        return self.observations.encode(self.instance.context())

    def deliver(self, feedback: Feedback, playing: Array | None = None) -> Feedback:
        """Return the feedback that arrives in the lanes that play, all by default."""
        if self.arrivals is None:
            return feedback
        self.arrivals.turn(playing)
        return self.arrivals.exchange(self._delay_buffer, feedback)

    def step_results(
        self, action: Array, outcome: Outcome, playing: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Return rewards and info arrays of one step, after all feedback wrappers."""
        infos = self._infos(outcome)
        feedback = outcome.feedback
        for layer in self.layers:
            feedback, infos = layer.exchange(action, feedback, infos, playing)
        return feedback.reward, infos

    def blank_infos(self) -> dict[str, Array]:
        """Return the infos of a reset: the keys and dtypes of a step, with placeholders.

        Tools that record infos need the same keys in every step. The answer of a kind of another
        package is left out, because its shape is known with the first response only.
        """
        count = self.lanes
        infos: dict[str, Array] = {"t": np.zeros(count, np.int64)}
        if self.response in ("choice", "demand"):
            dtype = np.int64 if self.response == "choice" else np.float64
            infos[self.response] = np.full(count, PLACEHOLDERS.get(self.response, 0), dtype)
        if self.partial:
            infos["observed"] = np.zeros(count, bool)
        if self.arrivals is not None:
            infos["arrived"] = np.zeros(count, bool)
            infos["origin"] = np.zeros(count, np.int64)
        for name in ("expected_reward", "oracle_reward", "regret"):
            infos[name] = np.zeros(count)
        for layer in self.layers:
            infos = layer.blank(infos)
        return infos

    def _infos(self, outcome: Outcome) -> dict[str, Array]:
        """Return info arrays with the same keys in every step, without hidden parameters."""
        feedback = outcome.feedback
        infos: dict[str, Array] = {"t": self.instance.t.copy()}
        if self.response is not None:
            infos[self.response] = getattr(feedback, self.response)
        if self.partial:
            assert feedback.observed is not None
            infos["observed"] = feedback.observed
        if self.arrivals is not None:
            infos["arrived"], infos["origin"] = self.arrivals.arrived, self.arrivals.origin.copy()
        infos["expected_reward"] = outcome.expected.copy()
        if self.instance.left is None:
            infos["oracle_reward"] = np.array(self.instance.oracle()[1], dtype=np.float64)
        else:
            infos["oracle_reward"] = outcome.expected + outcome.regret
        infos["regret"] = outcome.regret
        return infos
