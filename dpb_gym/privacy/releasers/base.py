"""What every releaser is: a plan that its curator calibrates and charges once, then noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from dpb_gym.errors import BudgetError

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator
    from dpb_gym.privacy.events import Event
    from dpb_gym.privacy.noise import NoiseSource


class Releaser(ABC):
    """Raw records in, releases out; a policy sees releases only.

    Making one declares a plan to the curator: everything that will ever be released. The curator
    calibrates the plans of all its releasers together, charges each once (`cost`), and opens them
    (`open`); that happens when `begin` is over, or earlier if a scale is asked for. Without a
    budget `open` gets no rho, and the same calls release exact values.

    A new mechanism is a subclass with `cost`, `open` and methods of its own that take records and
    return releases; what it keeps between them is its state.

    Args:
        curator: Whose budget, ledger and noise it uses.
        share: Its part of the budget in (0, 1]; None: an equal part of what the others leave.
        what: What is released, in words, for the ledger.
    """

    def __init__(self, curator: Curator, *, share: float | None, what: str) -> None:
        self.curator, self.what = curator, what
        self.replicates = curator.replicates
        self.opened = False
        curator.register(self, share)

    @abstractmethod
    def cost(self, rho: float) -> Event:
        """The accounting event of the whole plan, made for `rho` zCDP or a nominal rho."""

    @abstractmethod
    def open(self, rho: float | None, noise: NoiseSource) -> None:
        """Sets the scale of the noise: that of ``cost(rho)``, or none if rho is None."""

    def ready(self) -> None:
        """Has the curator seal its plans if that has not happened yet.

        Raises:
            BudgetError: If that failed before; nothing is ever released then.
        """
        if not self.opened:
            self.curator.seal()
        if not self.opened:
            raise BudgetError(f"{self.what}: its curator refused the plans; nothing is released")
