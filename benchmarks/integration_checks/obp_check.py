"""Open Bandit Pipeline: its estimators on the rounds of our log give our estimates."""

import numpy as np
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    InverseProbabilityWeighting,
    SelfNormalizedDoublyRobust,
    SelfNormalizedInverseProbabilityWeighting,
)
from rows import attempt, difference

from dpb_gym.offline.estimators import WEIGHTING, Weighted

PAIRS = {
    "ips": InverseProbabilityWeighting,
    "snips": SelfNormalizedInverseProbabilityWeighting,
    "dm": DirectMethod,
    "dr": DoublyRobust,
    "sndr": SelfNormalizedDoublyRobust,
}
N, K = 2000, 6


def compare(name):
    rng = np.random.default_rng(1)
    action, reward = rng.integers(0, K, N), rng.random(N)
    pscore = rng.uniform(0.05, 0.9, N)
    target = rng.dirichlet(np.ones(K), N)
    q = rng.random((N, K))
    rows = np.arange(N)
    theirs = PAIRS[name]().estimate_policy_value(
        reward=reward, action=action, pscore=pscore, action_dist=target[:, :, None],
        estimated_rewards_by_reg_model=q[:, :, None], position=np.zeros(N, int),
    )  # fmt: skip
    ours = WEIGHTING[name](
        Weighted(
            target[rows, action] / pscore, reward, (0.0, 1.0), (target * q).sum(axis=1),
            q[rows, action],
        )
    )  # fmt: skip
    return difference(ours.value, theirs)


for name, kind in PAIRS.items():
    attempt(f"OBP {kind.__name__}", f"the estimate of {name!r}", lambda n=name: compare(n))
