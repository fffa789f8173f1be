"""Non-private multinomial-logit agents: greedy, UCB-MNL and TS-MNL on exact releases.

`act` and `observe` are in `mnl_policy.py`.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

from dpb_agents.assortment.choice_records import ChoiceMLE
from dpb_agents.assortment.mnl_policy import ChoiceReleasers, MNLPolicy
from dpb_agents.common.parameters import positive
from dpb_gym import portable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.registry import register_agent


class Confidence(NamedTuple):
    """Width alpha_t = sqrt(2 d log(1 + t/d) + 2 log t) / (2 kappa) (Oh & Iyengar 2021)."""

    dim: int
    kappa: float

    def __call__(self, t: int) -> float:
        d = self.dim
        return math.sqrt(2 * d * portable.log1p(t / d) + 2 * portable.log(t)) / (2 * self.kappa)


class ExactMNL(MNLPolicy):
    """The multinomial-logit policy on exact releases: maximum likelihood and Gram sum.

    Args:
        ridge: Weight of ``||theta||^2 / 2`` in the loss, and the shift of V.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [0.02, 0.05, 0.1, 0.2],
        "growth": [1.3, 2.0],
    }

    kappa: float = positive(1.0, init=False)
    ridge: float = positive(1.0)

    def releasers(self, problem: ProblemInfo, curator: Curator) -> ChoiceReleasers:
        d, K = problem.dim, problem.capacity
        assert K is not None
        return ChoiceReleasers(
            estimator=ChoiceMLE(curator, K, d, problem.longest, ridge=self.ridge),
            gram=curator.running_sum(symmetric=d),
            shift=self.ridge,
            floor=0.0,
            max_updates=None,
            width=Confidence(d, self.kappa),
            clip=False,
        )


@register_agent("ucb-mnl", supports=["assortment"])
class UCBMNL(ExactMNL):
    """UCB-MNL: maximum likelihood plus an ellipsoidal bonus (Oh & Iyengar 2021).

    The estimate is updated whenever det V has doubled, not every round. The bonus is scaled
    down, since the theoretical width explores far too much. arXiv:2103.13929.

    Args:
        explore: Rounds of uniformly random sets.
        scale: Multiplier of the confidence width.
        kappa: Curvature constant of the width (acts as another multiplier, 1 / kappa).
    """

    rule: str = field(default="ucb", init=False)
    scale: float = 0.2
    kappa: float = 1.0


@register_agent("ts-mnl", supports=["assortment"])
class TSMNL(ExactMNL):
    """TS-MNL: Thompson sampling with optimistic draws (Oh & Iyengar 2019).

    https://papers.neurips.cc/paper/2019/hash/36d7534290610d9b7e9abed244dd2f28-Abstract.html

    Args:
        scale: Multiplier of the standard deviation of the draws.
        kappa: Curvature constant of that deviation.
        samples: Draws per round; each item gets its largest utility among them. The default is
            the number that makes this optimistic with constant probability; 1 is plain Thompson
            sampling.
    """

    rule: str = field(default="ts", init=False)
    scale: float = 0.1
    kappa: float = 1.0
    samples: int | None = None


@register_agent("greedy-mnl", supports=["assortment"])
class GreedyMNL(ExactMNL):
    """Greedy MNL: random start, then the best assortment under maximum likelihood."""

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [5, 20],
        "ridge": [0.3, 1.0],
        "growth": [1.3, 2.0],
    }

    explore: int = 5
