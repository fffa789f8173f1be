"""Minari: a data set of episodes with infos, so that it has the regret."""

import os
import tempfile

os.environ.setdefault("MINARI_DATASETS_PATH", tempfile.mkdtemp())

import gymnasium as gym
import minari
import numpy as np
from rows import attempt

import dpb_gym  # noqa: F401  (registers the environments)

IDS = {
    "slates": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 3}),
    "prices": ("DPB/Pricing-v0", {"dim": 3}),
    "late": ("DPB/Pricing-v0", {"dim": 3, "delay": "fixed=3"}),
    "candidates": ("DPB/Recommendation-v0", {"dim": 3, "n_candidates": 4, "available": 0.5}),
}


def record():
    for name, (env_id, kwargs) in IDS.items():
        env = minari.DataCollector(gym.make(env_id, horizon=15, **kwargs), record_infos=True)
        seen = []
        for seed in range(2):
            _, info = env.reset(seed=seed)
            done = False
            while not done:
                action = env.action_space.sample()
                if name == "candidates":  # some are sold out
                    action = np.flatnonzero(env.unwrapped.action_masks())[0]
                *_, terminated, truncated, info = env.step(action)
                seen.append(info["regret"])
                done = terminated or truncated
        made = env.create_dataset(f"dpb/{name}-v0", algorithm_name="random")
        stored = [value for episode in made for value in episode.infos["regret"][1:]]
        np.testing.assert_allclose(stored, seen)
        assert made.recover_environment().spec.id == env_id
    return ", ".join(env_id for env_id, _ in IDS.values()) + "; infos hold the regret"


attempt("Minari DataCollector(record_infos=True)", "record, store, read, recover", record)
