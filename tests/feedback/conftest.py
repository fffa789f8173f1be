"""Wrapped environments of every kind."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym  # noqa: F401  (registers the environments)
from dpb_gym import feedback as f
from dpb_gym.privacy import Budget

SMALL = {"n_items": 6, "capacity": 3, "dim": 2}
CASES = {
    "choice": (
        "DPB/Assortment-v0",
        {**SMALL, "revenues": "random"},
        "response",
        lambda: f.RandomizedResponse(1.0, 4),
    ),
    "choice-mask": (
        "DPB/Assortment-v0",
        {**SMALL, "action_mode": "mask", "obs_mode": "dict"},
        "response",
        lambda: f.RandomizedResponse(1.0, 4),
    ),
    "choice-exactly": (
        "DPB/Assortment-v0",
        {**SMALL, "exactly": True, "revenues": "signed", "types": 2},
        "response",
        lambda: f.RandomizedResponse(1.0, 4),
    ),
    "purchase-at-a-loss": (
        "DPB/Assortment-v0",
        {**SMALL, "revenues": [-0.5] * 6, "drift": "walk"},
        "response",
        lambda: f.RandomizedResponse(1.0),
    ),
    "click-available": (
        "DPB/Recommendation-v0",
        {"dim": 3, "available": np.ones((99, 5)), "obs_mode": "dict", "intercept": -1.0},
        "response",
        lambda: f.RandomizedResponse(1.0),
    ),
    "purchase": ("DPB/Assortment-v0", SMALL, "response", lambda: f.RandomizedResponse(1.0)),
    "revenue": ("DPB/Assortment-v0", SMALL, "response", lambda: f.LaplaceResponse(1.0)),
    "demand": ("DPB/Pricing-v0", {}, "response", lambda: f.RandomizedResponse(1.0)),
    "demand-gaussian": (
        "DPB/Pricing-v0",
        {"demand": "gaussian", "n_prices": 5},
        "response",
        lambda: f.GaussianResponse(1.0, -2.0, 2.0),
    ),
    "click": ("DPB/Recommendation-v0", {"dim": 3}, "response", lambda: f.RandomizedResponse(1.0)),
    "reward": ("DPB/Recommendation-v0", {"dim": 3}, "response", lambda: f.GaussianResponse(1.0)),
    "reward-replay": (
        "DPB/MovieLensReplay-v0",
        {"dim": 3, "protocol": "replay"},
        "response",
        lambda: f.LaplaceResponse(1.0),
    ),
    "contexts": ("DPB/Pricing-v0", {}, "contexts", lambda: f.GaussianContexts(0.5, 1, 2)),
    "contexts-assortment": (
        "DPB/Assortment-v0",
        {**SMALL, "revenues": "random"},
        "contexts",
        lambda: f.GaussianContexts(0.5, 6, 2),
    ),
    "contexts-dict": (
        "DPB/Recommendation-v0",
        {"dim": 3, "obs_mode": "dict", "interactions_per_user": 2},
        "contexts",
        lambda: f.GaussianContexts(0.5, 5, 3),
    ),
    "statistics": (
        "DPB/Recommendation-v0",
        {"dim": 3},
        "statistics",
        lambda: f.GaussianStatistics(1.0, 3),
    ),
    "cap-statistics": (
        "DPB/Recommendation-v0",
        {"dim": 3},
        "statistics",
        lambda: f.CapStatistics(1.0, 3),
    ),
    "statistics-replay": (
        "DPB/MovieLensReplay-v0",
        {"dim": 3, "protocol": "replay"},
        "statistics",
        lambda: f.GaussianStatistics(1.0, 3),
    ),
    "curator": ("DPB/Recommendation-v0", {"dim": 3}, "curator", lambda: Budget.zcdp(1.0)),
}
SINGLE = {
    "response": f.PrivateResponse,
    "contexts": f.PrivateContexts,
    "statistics": f.PrivateStatistics,
    "curator": lambda env, budget: f.CentralCurator(env, budget, batch=2),
}
VECTOR = {
    "response": f.VectorPrivateResponse,
    "contexts": f.VectorPrivateContexts,
    "statistics": f.VectorPrivateStatistics,
    "curator": lambda env, budget: f.VectorCentralCurator(env, budget, batch=2),
}
HORIZON = 5


def single(case, **more):
    env_id, kwargs, kind, make = CASES[case]
    return SINGLE[kind](gym.make(env_id, horizon=HORIZON, **kwargs), make(), **more)


def vector(case, num_envs, mode="NextStep", **more):
    env_id, kwargs, kind, make = CASES[case]
    vec = gym.make_vec(
        env_id,
        num_envs=num_envs,
        horizon=HORIZON,
        autoreset_mode=gym.vector.AutoresetMode(mode),
        **kwargs,
    )
    return VECTOR[kind](vec, make(), **more)


def same(a, b):
    """Equality of observations, infos and numbers, bit for bit."""
    if isinstance(a, dict):
        assert isinstance(b, dict) and a.keys() == b.keys(), (a, b)
        return all(same(a[k], b[k]) for k in a)
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


@pytest.fixture(params=CASES)
def case(request):
    return request.param
