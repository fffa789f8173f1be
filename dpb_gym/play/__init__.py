"""Agents as pure functions of one replicate, and the player that runs them.

`Algorithm` is the form of an agent, `Player` adds replicates, rounds and releases.
"""

from dpb_gym.kernels.deferred import jit
from dpb_gym.play.algorithm import Algorithm, Candidates, Functions, Offer, Plan, Released

__all__ = ["Algorithm", "Candidates", "Functions", "Offer", "Plan", "Released", "jit"]
