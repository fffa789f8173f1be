"""Off-policy evaluation: what a policy would have earned, from what another one logged.

Loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.offline.collecting import collect, monte_carlo_value
    from dpb_gym.offline.estimators import (
        ESTIMATORS,
        automatic_threshold,
        dm,
        dr,
        effective_sample_size,
        importance_weights,
        ips,
        snips,
        switch_dr,
    )
    from dpb_gym.offline.intervals import Estimate
    from dpb_gym.offline.log import LoggedData
    from dpb_gym.offline.offline import OfflineEvaluation, evaluate_offline
    from dpb_gym.offline.releasing import PrivateValue, release_value
    from dpb_gym.offline.rewards import ridge_rewards
    from dpb_gym.offline.targets import probabilities, train_offline

_HOMES = {
    "collecting": ("collect", "monte_carlo_value"),
    "estimators": (
        "ESTIMATORS",
        "automatic_threshold",
        "dm",
        "dr",
        "effective_sample_size",
        "importance_weights",
        "ips",
        "snips",
        "switch_dr",
    ),
    "intervals": ("Estimate",),
    "log": ("LoggedData",),
    "offline": ("OfflineEvaluation", "evaluate_offline"),
    "releasing": ("PrivateValue", "release_value"),
    "rewards": ("ridge_rewards",),
    "targets": ("probabilities", "train_offline"),
}

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "LoggedData",
    "OfflineEvaluation",
    "PrivateValue",
    "automatic_threshold",
    "collect",
    "dm",
    "dr",
    "effective_sample_size",
    "evaluate_offline",
    "importance_weights",
    "ips",
    "monte_carlo_value",
    "probabilities",
    "release_value",
    "ridge_rewards",
    "snips",
    "switch_dr",
    "train_offline",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
