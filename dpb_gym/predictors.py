"""Trained models as agents: objects with `predict`, such as those of Stable-Baselines3."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams


class Predictor(Agent):
    """Agent that plays what a trained model predicts; it does not learn.

    The model sees the observations of the environment, flat or as a dict by its own
    ``observation_space``. Its actions are those of the ``action_space`` that it was trained on: one
    of the environment's action modes, or a price that was rescaled to [-1, 1]. A model without
    spaces sees flat observations one by one and returns actions of the environment's default.

    Args:
        model: Object with ``predict(observation)``, which returns an action, or a tuple that
            begins with it. A model with an ``observation_space`` is called as one of
            Stable-Baselines3: with a batch, and ``deterministic=True``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        from dpb_gym.envs.actions import mode_of
        from dpb_gym.envs.core import encode

        self._encode = encode
        self._spaces = getattr(self.model, "observation_space", None) is not None
        dictionary = hasattr(getattr(self.model, "observation_space", None), "spaces")
        self._obs_mode = "dict" if dictionary else "flat"
        self._mode, self._rescale = mode_of(problem, getattr(self.model, "action_space", None))
        self._memory: Any = None
        self._first = np.ones(streams.replicates, bool)

    def act(self, context: Context) -> Array:
        observation = self._encode(context, self._obs_mode)
        B = len(self._first)
        if self._spaces:
            prediction = self.model.predict(
                observation, state=self._memory, episode_start=self._first, deterministic=True
            )
            actions, self._memory = _parts(prediction)
            self._first[:] = False
        else:
            rows = observation if self._obs_mode == "flat" else ()
            actions = np.stack([np.asarray(_parts(self.model.predict(row))[0]) for row in rows])
        actions = np.asarray(actions).reshape(B, *(self._mode.space.shape or ()))
        if self._rescale:
            low, high = self._mode.space.low, self._mode.space.high  # type: ignore[attr-defined]
            actions = np.clip(low + 0.5 * (actions + 1.0) * (high - low), low, high)
        return self._mode.decode(actions, B)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Do nothing."""


def _parts(prediction: Any) -> tuple[Any, Any]:
    """Return action and memory of what `predict` returned."""
    if not isinstance(prediction, tuple):
        return prediction, None
    return prediction[0], prediction[1] if len(prediction) > 1 else None


class PredictorMaker:
    """Maker of `Predictor` agents of one model.

    Attributes:
        version: Digest of the model, which distinguishes stored results.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.__name__ = type(model).__name__

    def __call__(self) -> Predictor:
        return Predictor(self.model)

    @cached_property
    def version(self) -> str:
        """Return the digest of the model's parameters, or of the whole object, and its class.

        Raises:
            ParameterError: If the object cannot be pickled.
        """
        import joblib

        named = getattr(self.model, "get_parameters", None)
        try:
            content = _arrays(named()) if callable(named) else self.model
            digest = joblib.hash((content, _source(type(self.model))))
        except Exception as error:
            raise ParameterError(
                f"results of {shown(self.model)} cannot be stored, as it cannot be pickled: {error}"
            ) from error
        return str(digest)


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # of a notebook or a compiled module
        return ""


def _arrays(parameters: Any) -> Any:
    """Return nested parameters with tensors as arrays."""
    if isinstance(parameters, dict):
        return {name: _arrays(each) for name, each in parameters.items()}
    if isinstance(parameters, (list, tuple)):
        return [_arrays(each) for each in parameters]
    tensor = getattr(parameters, "detach", None)
    return tensor().cpu().numpy() if callable(tensor) else parameters


def is_model(thing: Any) -> bool:
    """Return whether an object, not a class, has a method `predict`."""
    return not isinstance(thing, type) and callable(getattr(thing, "predict", None))


def unfit(thing: Any) -> ParameterError:
    """Return the error for something that is no agent, with what to give instead."""
    return ParameterError(
        "an agent must be a registered name, (name, budget), (name, budget, parameters), an "
        "agent class, a function without arguments that makes an agent, or an object with "
        "predict(observation), such as a model of Stable-Baselines3. Wrap others in a "
        f"dpb_gym.SingleAgent, whose act(context) returns the action. Got {shown(thing)}"
    )
