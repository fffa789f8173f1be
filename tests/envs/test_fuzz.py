"""Hostile values in the public API of problems, environments and feedback give typed errors."""

from __future__ import annotations

import inspect
import itertools
import random
import warnings
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym import feedback as f
from dpb_gym.envs.gym_env import BanditEnv, BanditVectorEnv
from dpb_gym.envs.registration import ENVIRONMENTS, environment
from dpb_gym.errors import DPBError
from dpb_gym.privacy import Budget

IDS = sorted(e for e in ENVIRONMENTS if e.startswith("DPB/"))
SEED, ROUNDS = 20261122, 4


class Hostile:
    """Object that cannot be converted to an array, a number or text."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")


VALUES = {
    "none": None,
    "true": True,
    "text": "text",
    "empty": "",
    "digits": "1.5",
    "nul": "\0",
    "bytes": b"x",
    "complex": 1 + 2j,
    "complex array": np.array([1 + 2j, 0.5]),
    "text array": np.array(["0.5", "1"]),
    "object array": np.array([object()], dtype=object),
    "masked": np.ma.masked_array([0.5, 0.5], [True, False]),
    "masked number": np.ma.masked,
    "huge": 10**400,
    "negative huge": -(10**400),
    "very long": 10**5000,
    "huge list": [10**400, 1],
    "nan": float("nan"),
    "infinite": float("inf"),
    "negative": -1,
    "zero": 0,
    "half": 0.5,
    "ragged": [[1], [1, 2]],
    "deep": [[[[[[0]]]]]],
    "empty list": [],
    "dict": {"a": 1},
    "set": {1, 2},
    "type": int,
    "function": len,
    "generator": (i for i in range(3)),
    "date": np.datetime64("2026-01-01"),
    "record": np.zeros(2, [("a", float)]),
    "hostile": Hostile(),
}


@pytest.fixture(autouse=True)
def registered_before():
    known, names = set(ENVIRONMENTS), set(gym.registry)
    yield
    for registry, before in ((ENVIRONMENTS, known), (gym.registry, names)):
        for name in set(registry) - before:
            del registry[name]


def doors():
    """Yield name, callable and number of arguments of the calls, for each value."""
    for env_id in IDS:
        entry = environment(env_id)
        for name in (*entry.parameters, *entry.interface):
            yield f"{env_id} {name}", lambda v, e=env_id, n=name: begin(BanditEnv(e, **{n: v}))
        yield f"{env_id} render_mode", lambda v, e=env_id: BanditEnv(e, render_mode=v)
    for name in ("num_envs", "autoreset_mode", "render_mode"):
        yield (
            f"vector {name}",
            lambda v, n=name: begin(BanditVectorEnv("DPB/Pricing-v0", **{n: v})),
        )
    yield "env_id", lambda v: BanditEnv(v)
    yield "make_problem", lambda v: dpb_gym.make_problem(v)
    yield "sequence", lambda v: dpb_gym.make_problem("DPB/Pricing-v0").instance(v)
    for name in ("env_id", "problem", "kind"):
        given = {"env_id": "Fuzz/New-v0", "problem": "a:b", "kind": "pricing"}
        yield (
            f"register_environment {name}",
            lambda v, n=name, g=given: dpb_gym.register_environment(**{**g, n: v}),
        )
    mechanisms = {
        f.RandomizedResponse: {"epsilon": 1.0, "categories": 2},
        f.GaussianResponse: {"sigma": 1.0, "low": 0.0, "high": 1.0},
        f.LaplaceResponse: {"scale": 1.0, "low": 0.0, "high": 1.0},
        f.GaussianContexts: {"sigma": 1.0, "vectors": 1, "dim": 2},
        f.GaussianStatistics: {"sigma": 1.0, "dim": 2, "low": 0.0, "high": 1.0},
    }
    for cls, given in mechanisms.items():
        for name in given:
            yield (
                f"{cls.__name__} {name}",
                lambda v, c=cls, g=given, n=name: c(**{**g, n: v}),
            )
        made = cls(**given)
        known = inspect.signature(made.privatise).parameters
        for name in known:
            yield (
                f"{cls.__name__}.privatise {name}",
                lambda v, m=made, n=name, k=known: m.privatise(
                    **{**dict.fromkeys(k, np.zeros((1, m.width))), n: v}
                ),
            )
    pricing = gym.make("DPB/Pricing-v0", horizon=5)
    for wrap in (f.PrivateResponse, f.PrivateContexts, f.PrivateStatistics, f.CentralCurator):
        yield f"{wrap.__name__} second argument", lambda v, w=wrap: w(pricing, v)
        yield f"{wrap.__name__} env", lambda v, w=wrap: w(v, f.RandomizedResponse(1.0))
    rec = gym.make("DPB/Recommendation-v0", horizon=5, dim=2)
    yield "batch", lambda v: f.CentralCurator(rec, Budget.zcdp(1.0), batch=v)


def begin(env):
    """Accepted values must allow an episode."""
    env.reset(seed=0)
    env.step(env.action_space.sample())


DOORS = dict(doors())


def reset(env, key, value):
    env.reset(**({"options": {key: value}} if key == "reset_mask" else {key: value}))


def attempt(call, value, what):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            call(value)
        except DPBError as error:
            assert str(error).strip(), what
        except Exception as error:
            pytest.fail(f"{what}: {type(error).__name__}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_hostile_values_raise_named_errors(door):
    if "Replay" in door or "Expedia" in door:
        chosen = random.Random(f"{SEED} {door}").sample(sorted(VALUES), 8)
    else:
        chosen = list(VALUES)
    for name in chosen:
        attempt(DOORS[door], VALUES[name], f"{door} = {name}")


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("many", [False, True])
def test_actions_seeds_and_options(env_id, many):
    kwargs = {"horizon": 2 * len(VALUES), **({"dim": 6} if "Replay" in env_id else {})}
    make = BanditVectorEnv if many else BanditEnv
    modes = [{}]
    if "Assortment-v0" in env_id and "Expedia" not in env_id:
        modes = [{"action_mode": m, "n_items": 6, "capacity": 2} for m in ("slate", "mask")]
        modes += [{"action_mode": m, "n_items": 6, "capacity": 2} for m in ("scores", "index")]
    for mode in modes:
        env = make(env_id, **kwargs, **mode)
        env.reset(seed=1)
        for (name, value), extra in itertools.product(VALUES.items(), (False, True)):
            attempt(env.step, [value] if extra else value, f"{env_id} {mode} action {name}")
            assert env.core.instance.t[0] < kwargs["horizon"]
        for name, value in VALUES.items():
            for key in ("seed", "options", "reset_mask"):
                attempt(partial(reset, env, key), value, f"{env_id} {key} {name}")


@pytest.mark.parametrize(
    "name", ["env_id", "env_kwargs", "horizon", "replicates", "agents", "checkpoints", "budgets"]
)
def test_evaluate(name):
    given = {"env_id": "DPB/Pricing-v0", "agents": ["random"], "horizon": 3, "replicates": 1}
    for key, value in VALUES.items():
        if name in ("horizon", "replicates") and isinstance(value, int) and value > 10:
            continue  # a run of that length
        if (name, key) == ("agents", "function"):
            continue  # its own error is the caller's
        attempt(
            lambda v: dpb_gym.evaluate(**{**given, name: v}, progress=False),
            value,
            f"evaluate {name}={key}",
        )


def test_random_arrays_as_records_and_actions():
    """Call with random arrays of many shapes, types and magnitudes."""
    rng = np.random.default_rng(SEED)
    env = gym.make("DPB/Assortment-v0", n_items=6, capacity=2, horizon=10_000).unwrapped
    env.reset(seed=0)
    statistics = f.GaussianStatistics(1.0, dim=2)
    types = ["?", "i1", "u8", "i8", "f2", "f4", "f8", "g", "c8", "U3", "S2", "O", "M8[s]", "m8[s]"]
    for _ in range(600):
        shape = tuple(rng.integers(0, 4, rng.integers(0, 4)))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 320)
            value = np.asarray(numbers).astype(rng.choice(types))
        if rng.random() < 0.2:
            value = np.ma.masked_array(value, rng.random(shape) < 0.5)
        attempt(env.step, value, f"action {value!r}")
        attempt(
            lambda v: statistics.privatise(v, np.zeros(len(v)), np.zeros((len(v), 5))),
            np.atleast_1d(value),
            "features",
        )
