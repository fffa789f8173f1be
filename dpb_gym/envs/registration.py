"""Registers the environments with Gymnasium."""

from __future__ import annotations

import gymnasium

from dpb_gym.envs.catalogue import ENVIRONMENTS


def register_environments() -> None:
    """Registers every id of the catalogue; calling it again changes nothing."""
    for env_id in ENVIRONMENTS:
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point="dpb_gym.envs.shells:BanditEnv",
                vector_entry_point="dpb_gym.envs.shells:BanditVectorEnv",
                kwargs={"env_id": env_id},
            )
