"""Off-policy evaluation: estimate the value of a policy from the log of another one."""

from dpb_gym.offline.collecting import collect
from dpb_gym.offline.estimators import (
    WEIGHTING,
    Estimate,
    Terms,
    effective_sample_size,
    estimated_propensities,
)
from dpb_gym.offline.log import Log
from dpb_gym.offline.offline_evaluation import OfflineEvaluation, evaluate_offline
from dpb_gym.offline.price_log import KERNELS, PriceLog
from dpb_gym.offline.recommendation_log import LoggedData, probabilities
from dpb_gym.offline.releasing import PrivateValue, release_prior, release_value
from dpb_gym.offline.slate_log import SLATES, SlateLog, SlateProbabilities
from dpb_gym.offline.training import train_offline

__all__ = [
    "KERNELS", "SLATES", "WEIGHTING", "Estimate", "Log", "LoggedData", "OfflineEvaluation",
    "PriceLog", "PrivateValue", "SlateLog", "SlateProbabilities", "Terms", "collect",
    "effective_sample_size", "estimated_propensities", "evaluate_offline", "probabilities",
    "release_prior", "release_value", "train_offline",
]  # fmt: skip
