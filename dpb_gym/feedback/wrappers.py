"""Gymnasium wrappers that replace the true feedback by private messages or noisy sums.

Each exists for single environments and, with ``Vector`` in its name, for vector environments; see
`dpb_gym.feedback.layers`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import validation
from dpb_gym.envs.core import lane
from dpb_gym.errors import BudgetError, ParameterError, shown
from dpb_gym.feedback.channel import ResponseChannel
from dpb_gym.feedback.context_mechanisms import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.layers import ChosenLayer, Layer, Rows, SingleLayer, VectorLayer
from dpb_gym.feedback.local_mechanisms import LocalMechanism, ResponseMechanism
from dpb_gym.privacy import Budget, Curator, Guarantee, Ledger, NoiseSource, Sum
from dpb_gym.privacy.releasers.named_sums import batch_sum
from dpb_gym.problems.base import Array, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import Stream, generator


class _Responses(Layer):
    covers = ("response",)
    withheld = ("choice", "demand", "answer")
    mechanism: ResponseMechanism

    def __init__(
        self, env: Any, mechanism: ResponseMechanism | Mapping[str, Any], debias: bool = False
    ) -> None:
        self.mechanism = LocalMechanism.of(mechanism)
        self.debias = validation.flag("debias", debias)
        self._wrap(env, mechanism=self.mechanism, debias=debias)

    def _fit(self, info: ProblemInfo) -> None:
        self._channel = ResponseChannel(self.mechanism, info)

    def _look(self, decoded: Array) -> Rows:
        revenues = self._core.instance.context().revenues
        known = {} if revenues is None else {"revenues": revenues.copy()}
        return {"action": decoded, **known}

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        sent, estimate = self._channel.send(
            seen.get("revenues"), seen["action"], feedback, self._draw(played)
        )
        fields = {key: getattr(sent, key) for key in self.withheld}
        messages = {key: message for key, message in fields.items() if message is not None}
        return estimate if self.debias else sent.reward, messages

    def _nothing(self, infos: Rows) -> Rows:
        return {key: infos[key] for key in self.withheld if key in infos}


class PrivateResponse(_Responses, SingleLayer):
    """Wrapper that privatises the response of every round by a local mechanism.

    See `ResponseChannel` for the message in each kind of problem. The reward is computed from
    the message (``debias=True``: an unbiased estimate of the true reward). ``info["choice"]`` and
    ``info["demand"]`` are the message, or absent.

    Args:
        env: A dpb-gym environment.
        mechanism: `RandomizedResponse`, `GaussianResponse` or `LaplaceResponse`, or its `to_dict`.
        debias: Whether the reward is the unbiased estimate.

    Raises:
        ParameterError: If the mechanism does not fit the problem.

    Example:
        >>> import gymnasium, dpb_gym
        >>> from dpb_gym.feedback import RandomizedResponse
        >>> env = gymnasium.make("DPB/Pricing-v0", horizon=10)
        >>> env = PrivateResponse(env, RandomizedResponse(epsilon=1.0))
        >>> str(env.guarantee)
        'local DP eps=1 per reward (replace-one)'
    """


class VectorPrivateResponse(_Responses, VectorLayer):
    """Vector version of `PrivateResponse`, with the same arguments and errors."""


class _Contexts(Layer):
    covers = ("context",)
    mechanism: GaussianContexts

    def __init__(self, env: Any, mechanism: GaussianContexts | Mapping[str, Any]) -> None:
        self.mechanism = LocalMechanism.of(mechanism)
        self._wrap(env, mechanism=self.mechanism)
        self._features: Array | None = None
        self._known = np.full(self._lanes, -1)
        self._last: Any = None
        for name in ("observation_space", "single_observation_space"):
            if hasattr(env, name):
                setattr(self, name, self._space(getattr(env, name)))

    def _fit(self, info: ProblemInfo) -> None:
        mechanism = self.mechanism
        *count, dim = kind_of(info.kind).feature_shape(info)
        wanted = (math.prod(count), dim)
        known = isinstance(mechanism, GaussianContexts)
        if not known or (mechanism.vectors, mechanism.dim) != wanted:
            raise ParameterError(
                f"this problem needs GaussianContexts with vectors={wanted[0]}, "
                f"dim={wanted[1]}, got {shown(mechanism)}"
            )
        if info.partial_feedback:
            raise ParameterError(
                "whether a round of a replay is observed reveals the logged item, so private "
                "contexts could not hide it; use protocol='matrix' or PrivateStatistics"
            )

    @property
    def provisos(self) -> tuple[str, ...]:
        info = self._core.problem.info
        raw = {
            "revenues": kind_of(info.kind).revenues and not info.equal_revenues,
            "user ids": info.max_interactions is not None,
            "what is available": info.masked,
        }
        shown = ", ".join(name for name, has in raw.items() if has)
        return (f"of a context the features only: {shown} without noise",) if shown else ()

    def open(self, i: int, seed: int, episode: int) -> None:
        super().open(i, seed, episode)
        self._known[i] = -1

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Start episodes; see the environment's `reset`."""
        info = super().reset(seed=seed, options=options)[1]
        return self._shown(), info

    def step(self, action: Any) -> Any:
        """Play one round; see the environment's `step`."""
        before = self._last
        _, *rest, info = super().step(action)
        if "final_obs" in info:  # observations of the last customers in restarted lanes
            info["final_obs"] = info["final_obs"].copy()
            for i in np.flatnonzero(info["_final_obs"]):
                info["final_obs"][i] = lane(before, int(i))
        return self._shown(), *rest, info

    def _shown(self) -> Any:
        """Return the current observation, with new noise for new customers only."""
        context = self._core.instance.context()
        now = self._core.instance.t
        if self._features is None:
            self._features = np.zeros(context.features.shape, np.float32)
        fresh = self._known != now
        if fresh.any():
            noisy = self.mechanism.privatise(context.features, self._draw(fresh))
            self._features[fresh] = noisy[fresh]
            self._known[:] = now
        shown = self._core.observations.encode(context._replace(features=self._features))
        self._last = shown
        return lane(shown, 0) if isinstance(self, SingleLayer) else deepcopy(shown)

    def _space(self, space: Any) -> Any:
        """Return the observation space with the messages' bound on features."""
        top = np.float32(self.mechanism.bound)
        if isinstance(space, gymnasium.spaces.Dict):
            noisy = gymnasium.spaces.Box(-top, top, space["features"].shape, np.float32)
            return gymnasium.spaces.Dict({**space.spaces, "features": noisy})
        low = space.low.copy()
        high = space.high.copy()
        end = self.mechanism.vectors * self.mechanism.dim
        low[..., :end], high[..., :end] = -top, top
        return gymnasium.spaces.Box(low, high, dtype=np.float32)


class PrivateContexts(_Contexts, SingleLayer):
    """Wrapper that clips every customer's features and adds Gaussian noise.

    Noise is drawn once per customer: repeated observations are identical. Revenues, user ids and
    the mask of what is available are unchanged, and the guarantee says so.

    Args:
        env: A dpb-gym environment.
        mechanism: `GaussianContexts` for the problem's number and length of features.

    Raises:
        ParameterError: If the mechanism does not fit the problem, or if rounds return nothing
            (rejection replay).
    """


class VectorPrivateContexts(_Contexts, VectorLayer):
    """Vector version of `PrivateContexts`, with the same arguments and errors."""


class _Statistics(ChosenLayer):
    covers = ("response", "context")
    withheld = ("observed",)
    mechanism: GaussianStatistics

    def __init__(self, env: Any, mechanism: GaussianStatistics | Mapping[str, Any]) -> None:
        self.mechanism = LocalMechanism.of(mechanism)
        self._wrap(env, mechanism=self.mechanism)

    def _fit(self, info: ProblemInfo) -> None:
        super()._fit(info)
        mechanism = self.mechanism
        if not isinstance(mechanism, GaussianStatistics) or mechanism.dim != info.dim:
            raise ParameterError(
                f"this problem needs GaussianStatistics or CapStatistics with dim={info.dim}, got "
                f"{shown(mechanism)}"
            )

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        # Noise is sent also without an observation, which would reveal the logged item.
        chosen = self._chosen(seen, feedback)
        gram, response = self.mechanism.privatise(chosen, feedback.reward, self._draw(played))
        return np.zeros(self._lanes), {"gram": gram, "response": response}

    def _nothing(self, infos: Rows) -> Rows:
        dim = self.mechanism.dim
        return {
            "gram": np.zeros((self._lanes, dim, dim)),
            "response": np.zeros((self._lanes, dim)),
        }


class PrivateStatistics(_Statistics, SingleLayer):
    """Wrapper that returns each round's statistics x x' and r x as one private message.

    ``info["gram"]`` ``(d, d)`` and ``info["response"]`` ``(d,)`` are the message; the reward is
    always 0. The observation is the current customer's raw context, from which the action is
    chosen on the customer's side. The guarantee applies only to agents that learn from nothing
    but the messages. Recommendation only. A round without feedback (rejection replay) sends noise
    alone and cannot be distinguished from others.

    Args:
        env: A dpb-gym recommendation environment.
        mechanism: `GaussianStatistics` or `CapStatistics` of the problem's dimension.

    Raises:
        ParameterError: If the mechanism does not fit the problem.
    """


class VectorPrivateStatistics(_Statistics, VectorLayer):
    """Vector version of `PrivateStatistics`; ``infos["gram"]`` is ``(B, d, d)``."""


class _Curated(ChosenLayer):
    # It uses raw responses and contexts, so it cannot be combined with other layers.
    covers = ("response", "context")

    def __init__(self, env: Any, budget: Budget | str, batch: int = 300) -> None:
        given = Budget.parse(budget)
        if given is None:
            raise BudgetError(f"a central curator needs a budget, got {shown(budget)}")
        self._budget, self._batch = given, validation.integer("batch", batch, 1)
        self._wrap(env, budget=str(given), batch=batch)

    def _fit(self, info: ProblemInfo) -> None:
        super()._fit(info)
        self._sums = [self._sum(0, 0) for _ in range(self._lanes)]
        self._rounds = np.zeros(self._lanes, np.int64)

    def _sum(self, seed: int, episode: int) -> Sum:
        info = self._core.problem.info
        key = f"central curator, {self._budget}, batches of {self._batch}"
        noise = NoiseSource([generator(seed, Stream.LOCAL_PRIVACY, episode, key)])
        curator = Curator(self._budget, ("central", "reward"), noise=noise, horizon=info.longest)
        made = batch_sum(curator, info.dim, reward=info.reward_range)
        curator.seal()
        return made

    def open(self, i: int, seed: int, episode: int) -> None:
        self._sums[i] = self._sum(seed, episode)
        self._rounds[i] = 0

    @property
    def ledgers(self) -> list[Ledger]:
        """The ledger of the current episode, one per lane."""
        return [sums.curator.ledger for sums in self._sums]

    def _send(self, seen: Rows, feedback: Feedback, played: Array) -> tuple[Array, Rows]:
        chosen = self._chosen(seen, feedback)
        response = np.zeros_like(chosen)
        released = np.zeros(self._lanes, bool)
        for i in np.flatnonzero(played):
            self._sums[i].add(feedback.reward[i : i + 1], chosen[i : i + 1])
            self._rounds[i] += 1
            released[i] = self._rounds[i] % self._batch == 0
            if released[i]:
                response[i] = self._sums[i].release()[0]
        return np.zeros(self._lanes), {"response": response, "released": released}

    def _nothing(self, infos: Rows) -> Rows:
        dim = self._core.problem.info.dim
        return {
            "response": np.zeros((self._lanes, dim)),
            "released": np.zeros(self._lanes, bool),
        }

    @property
    def guarantee(self) -> Guarantee:
        """Central guarantee for the reward of one round; contexts and actions are public."""
        provisos = self._core.problem.info.provisos
        return replace(self.ledgers[0].guarantee, provisos=provisos)


class CentralCurator(_Curated, SingleLayer):
    """Wrapper that replaces rewards by noisy sums of r x over batches of rounds.

    Any agent that uses rewards only through the sum of r x is private with this wrapper.
    After every `batch` rounds ``info["released"]`` is True and ``info["response"]`` ``(d,)``
    is the batch's sum plus noise; in other rounds it is zero. Features x, clipped to the unit
    ball, are public: agents sum x x' themselves. The reward is always 0; the true reward is in
    the attribute `truth`, for the harness. The rounds after the last full batch are never
    released. Batches are disjoint, so their total cost is that of one batch.

    Args:
        env: A dpb-gym recommendation environment.
        budget: Budget of one episode, e.g. ``"rho=0.5"``.
        batch: Rounds between releases.

    Attributes:
        ledgers: The ledger of the current episode, one per lane.

    Raises:
        ParameterError: If the environment is no recommendation or a parameter is out of range.
        BudgetError: If the budget is None.
    """


class VectorCentralCurator(_Curated, VectorLayer):
    """Vector version of `CentralCurator`; every lane has a separate curator and budget."""
