"""Releasers: raw records in, releases out."""

from dpb_gym.privacy.releasers.base import Releaser
from dpb_gym.privacy.releasers.bounds import Ball, Bound, PSDBall, Segment
from dpb_gym.privacy.releasers.continual import ContinualSum
from dpb_gym.privacy.releasers.exact import ExactSum
from dpb_gym.privacy.releasers.gaussian import GaussianSum

__all__ = [
    "Ball",
    "Bound",
    "ContinualSum",
    "ExactSum",
    "GaussianSum",
    "PSDBall",
    "Releaser",
    "Segment",
]
