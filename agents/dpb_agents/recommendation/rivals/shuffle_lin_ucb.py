"""Shuffle-LinUCB: batches of customers behind a shuffler (Chowdhury & Zhou)."""

from __future__ import annotations

from dataclasses import field

from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.rivals.noisy_gram import NoisyGramUCB
from dpb_gym.privacy import Curator, PSDBall, ShuffledSum
from dpb_gym.registry import register_agent


@register_agent("shuffle-lin-ucb", supports=SUPPORTS, protects=("shuffle", "user-round"))
class ShuffleLinUCB(NoisyGramUCB):
    """LinUCB on shuffled batch sums of x x' and r x (Chowdhury & Zhou 2022; Garcelon et al. 2022).

    Customers of batch m learn V_{m-1} and theta_{m-1}, choose by their own features the largest
    <x, theta> + alpha ||x||_{V^-1}, and send [x; r] [x; r]' as randomised bits
    (`dpb_gym.privacy.ShuffledSum`). The shuffler mixes the bits of the `every` customers of the
    batch; V_m adds what their numbers say of the sum, and V holds ``shift`` times a bound on the
    noise's operator norm besides. One record holds both sums, so its sensitivity is exact; the
    bits are our own, see there what differs from the papers' protocols.

    The guarantee is of notion shuffle, for one **user-round**, replace-one: it trusts the shuffler
    to forget who sent what, and nobody else. Sensitivity of a record sqrt(2) (1 + max r^2) as in
    `jdp-lin-ucb`, in steps of the bits. Batches are disjoint and compose in parallel. Without a
    budget the sums are exact.

    Args:
        every: Customers of a batch, B. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many; who was not observed sends x = 0.
    """

    releaser: ShuffledSum = field(init=False, repr=False)
    calibration: str = field(default="verified", init=False)

    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        self.releaser = ShuffledSum(
            curator,
            symmetric=self._theta.shape[1] + 1,
            clip=clip,
            batch=self._interval,
            cumulative=True,
            what="shuffled sums of [x; r] [x; r]'",
        )
