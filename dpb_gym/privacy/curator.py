"""The curator: owns an agent's budget, ledger, noise and releasers.

The guarantee follows from its ledger alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import state, validation
from dpb_gym.errors import AgentError, BudgetError, ParameterError
from dpb_gym.lazy import of_this_distribution
from dpb_gym.privacy import forks
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import equivalent_rho, fit_rho
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import Event, GaussianEvent
from dpb_gym.privacy.guarantee import ROUNDS, Guarantee
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource, SystemNoise
from dpb_gym.privacy.releasers import named_sums
from dpb_gym.privacy.releasers.mechanisms import Discrete
from dpb_gym.privacy.releasers.minimiser import Minimiser
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.releaser import Handle, Releaser, Rounds, WithoutAxis, behind
from dpb_gym.privacy.releasers.trust_models import TRUST_MODELS

SLACK = 1e-9
COMPARED = (0.0, 1e-12, 1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, *(k / 10 for k in range(1, 10)), 0.99)
"""Deltas at which the curves of replicates are compared."""


class OpenRounds:
    """Context manager of open rounds, see `Curator.round`.

    A class, because a generator takes twice the time, in every round.

    Args:
        rounds: The rounds of a curator.
        t: Number of the first one.
        n: Number of rounds.
    """

    __slots__ = ("_n", "_rounds", "_t")

    def __init__(self, rounds: Rounds, t: int, n: int) -> None:
        self._rounds = rounds
        self._t = t
        self._n = n

    def __enter__(self) -> None:
        rounds = self._rounds
        if rounds.open or self._t <= rounds.newest:
            raise BudgetError(
                f"round {self._t} of this curator was opened before: a round's records enter once"
            )
        # set before the records, so that an error inside does not reopen the round
        rounds.enter(self._t, self._n)

    def __exit__(self, *error: object) -> None:
        self._rounds.leave()


@state.register
class Curator:
    """Budget, ledger, noise and releasers of one agent on B replicates.

    An agent creates its releasers in `begin`. Each has a `share` of the budget, or an equal part
    of what the other shares leave. When `begin` is over the curator seals: it calibrates all
    plans together so that they spend exactly the budget, charges each once and sets its noise.
    Without a budget the same calls create exact releasers, and there is no guarantee.

    Args:
        budget: Privacy budget, as `Budget` or text; None: nothing is private.
        protects: Notion and unit, see `Guarantee`. The notion is the one for a trusted curator; the
            trust model of the budget replaces it.
        noise: Source of the noise of B replicates; ``"system"`` draws from the operating
            system's entropy, discrete on a grid (see `SystemNoise`).
        replicates: B, needed with ``"system"`` and without a budget.
        horizon: Largest number of records per replicate, None if it is not known.
        relation: See `Guarantee`.
        copies: Number of replicates with the same records, as in training from one log.
            Everything is charged that many times, because all share one budget. By default
            replicates are separate data sets.

    Attributes:
        budget: Privacy budget, or None.
        replicates: B.
        trust: Trust model, see `Budget`.
        notion: See `Guarantee`.
        unit: See `Guarantee`.
        relation: See `Guarantee`.
        horizon: Largest number of records per replicate, or None.
        releasers: Handles of all releasers, in order of creation.
        provisos: Clauses of the guarantee, see `Guarantee`.
        handed_over: Why this curator's releases have ended, or None.
        rounds: Rounds of a harness, shared with the curators of single replicates.

    Raises:
        BudgetError: If the budget is invalid, or one is given and notion, unit or relation is.

    Example:
        >>> import numpy as np
        >>> from dpb_gym.privacy import NoiseSource
        >>> curator = Curator("rho=0.5", noise=NoiseSource.from_seed(0), horizon=100)
        >>> sums = curator.running_sum(3, reward=(0.0, 1.0))
        >>> sums.add([0.7], along=np.eye(3)[:1])
        >>> sums.value.shape, str(curator.guarantee)[:31]
        ((1, 3), 'central zCDP rho=0.5 per reward')
    """

    def __init__(
        self,
        budget: Budget | str | None,
        protects: tuple[str, str] = ("central", "reward"),
        *,
        noise: NoiseSource | str | None = None,
        replicates: int | None = None,
        horizon: int | None = None,
        relation: str = "replace-one",
        copies: int = 1,
    ) -> None:
        self.budget = Budget.parse(budget)
        self.copies = validation.integer("copies", copies, 1)
        notion, self.unit = protects
        self.relation = relation
        self.trust = "curator" if self.budget is None else self.budget.trust
        self.notion = TRUST_MODELS[self.trust].notion or notion
        self.horizon = horizon
        if self.budget is not None:
            Guarantee(self.notion, self.unit, relation)  # validates the three names
            if noise is None:
                raise ParameterError("a curator with a budget needs noise: NoiseSource or 'system'")
        # checked by name, so that a typing error does not become seeded noise
        if isinstance(noise, str):
            validation.choice("noise", noise, ("system",))
            noise = SystemNoise(replicates or 1)
        self.noise = noise
        self.replicates = noise.replicates if noise is not None else (replicates or 1)
        self.releasers: list[Handle] = []
        self._shares: list[float | None] = []
        self._sealed = self._without_axis = False
        self.parts: dict[int, Curator] = {}
        self.handed_over: str | None = None
        self.provisos: tuple[str, ...] = ()
        self.rounds = Rounds()
        forks.OWNERS.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes of a copy, or of one that is loaded."""
        vars(self).update(state)
        forks.OWNERS.add(self)

    @cached_property
    def ledger(self) -> Ledger:
        """All charges; created on first use."""
        return Ledger(self.budget, self.notion, self.unit, self.relation)

    @property
    def private(self) -> bool:
        """Whether there is a budget."""
        return self.budget is not None

    @property
    def system_noise(self) -> bool:
        """Whether noise comes from the operating system, discrete on a grid."""
        return self.private and self.noise is not None and self.noise.system

    @property
    def most_rho(self) -> float:
        """Largest rho that Gaussian releases could spend with the whole remaining budget."""
        if self.budget is None:
            return math.inf
        # releases before the agent began are on the same records
        spent = self.ledger.inherited
        if self.budget.rho is not None:
            return max(0.0, self.budget.rho - (spent.zcdp or 0.0)) / self.copies
        if not spent:
            return equivalent_rho(self.budget) / self.copies
        # a Gaussian of scale 1 and sensitivity sqrt(2 rho) costs rho
        one = partial(GaussianEvent, 1.0)
        return fit_rho(self.budget, lambda r: [*spent.events, one(math.sqrt(2 * r))]) / self.copies

    def running_sum(self, width: int | None = None, **options: Any) -> Any:
        """Create a running sum of records; see `named_sums.running_sum`.

        This and the next three create sums of vectors of length `width`, or of symmetric matrices
        of side `symmetric`.
        """
        return self._create(named_sums.running_sum, width, options)

    def batch_sum(self, width: int | None = None, **options: Any) -> Any:
        """Create sums of disjoint batches of records; see `named_sums.batch_sum`."""
        return self._create(named_sums.batch_sum, width, options)

    def shuffled_sum(self, width: int | None = None, **options: Any) -> Any:
        """Create sums of batches of shuffled bits; see `named_sums.shuffled_sum`."""
        return self._create(named_sums.shuffled_sum, width, options)

    def weighted_sum(self, width: int | None = None, **options: Any) -> Any:
        """Create running sums of records, released at planned times, for any trust model.

        The sum has a `value`, its `noise_std` and a `schedule`; see `named_sums.weighted_sum`. With
        an aggregator, `dropout` is the largest part of a batch's devices that may be lost.
        """
        options["trust"] = TRUST_MODELS[self.trust]
        if "dropout" in options:
            options["mechanism"] = Discrete(options.pop("dropout"))
        return self._create(named_sums.weighted_sum, width, options)

    def user_sum(self, width: int, **options: Any) -> Any:
        """Create batch sums with every user's contribution clipped; see `named_sums.user_sum`."""
        return self._create(named_sums.user_sum, width, options)

    def minimiser(self, dim: int, **options: Any) -> Any:
        """Create private minimisers of a convex loss; see `Minimiser`."""
        return self._create(Minimiser, dim, options)

    def _create(self, kind: Any, size: int | None, options: dict[str, Any]) -> Any:
        matrices = options.pop("symmetric", None)
        if size is None or matrices is not None:
            # the shape checks that exactly one of the two is given
            kind(self, RecordShape(size or 0, matrices or 0), **options)
        else:
            kind(self, size, **options)
        return self.releasers[-1]

    def round(self, t: int | None = None, n: int = 1) -> OpenRounds:
        """Open rounds t, ..., t + n - 1, in which their records enter the releasers.

        In every opening each releaser takes `Releaser.per_round` records per round and replicate,
        whatever its horizon is. From the first opening on no record enters outside of one. The
        curators of single replicates open with this one. A curator that is used by hand, without
        rounds, admits records at any time, up to the horizon.

        Args:
            t: Number of the first round, larger than that of every round before; None: the next.
            n: Number of rounds.

        Raises:
            BudgetError: If a round is open, or round t was opened before.
        """
        t = self.rounds.newest + 1 if t is None else validation.integer("t", t, 1)
        return OpenRounds(self.rounds, t, validation.integer("n", n, 1))

    def admit(self, releaser: Releaser, records: int) -> None:
        """Count records per replicate that are about to enter a releaser.

        Raises:
            BudgetError: If they are more than the open rounds have, or no round is open although
                a harness opens them. The records have not entered.
        """
        rounds = self.rounds
        if not rounds.open:
            if rounds.attended:
                raise BudgetError(
                    f"{releaser.what}: a record enters while the agent observes its round, not in "
                    "act or later"
                )
            return
        if releaser.entered_in != rounds.openings:
            releaser.entered_in = rounds.openings
            releaser.entered = 0
        # counted before the record is read, so that a refused one leaves no trace
        total = releaser.entered + records
        if total > rounds.open * releaser.per_round:
            where = "one round" if rounds.open == 1 else f"{rounds.open} rounds"
            raise BudgetError(
                f"{releaser.what}: {total} records in {where}, but its guarantee is for "
                f"{releaser.per_round} per round: add one record with what a round contributes"
            )
        releaser.entered = total

    def register(self, releaser: Releaser, share: float | None) -> None:
        """Add a releaser to the plan; called by its constructor.

        Raises:
            ParameterError: If the share is not in (0, 1].
            BudgetError: If shares add up to more than 1, the curator is sealed or its replicates
                have curators (`single`), or the notion is shuffle and the sum is not shuffled.
                Or if users are protected and the cost is that of one record.
            AgentError: If the releasers were handed over.
        """
        if self.handed_over:
            raise self._gone()
        if self.parts:
            raise BudgetError(f"{releaser.what}: the curators of single replicates have the budget")
        if self._sealed:
            raise BudgetError(
                f"{releaser.what}: the budget is calibrated and charged already. Make every "
                "releaser in begin, before one is used or asked for its scale"
            )
        # local messages are shuffle private whatever the shuffler does
        if self.notion == "shuffle" and not (releaser.shuffled or "local" in releaser.trusts):
            raise BudgetError(f"{releaser.what}: in notion shuffle there are shuffled sums only")
        if self.trust not in releaser.trusts:
            raise BudgetError(
                f"{releaser.what}: this release needs a trusted curator; give the budget "
                f"{self.budget.amount if self.budget else None} or an agent whose releases are "
                "weighted sums, such as one-pass-pricing"
            )
        users = self.private and self.unit not in ROUNDS
        # another package's releaser is declared anyway
        if users and not releaser.counts_users and foreign_part(releaser) is None:
            raise BudgetError(
                f"{releaser.what}: the {self.unit} is protected, who may have several records, and "
                "this release is charged for one of them; take a sum with a limit, or protect "
                "single rounds"
            )
        share = validation.optional(validation.real, "share", share, 0.0, 1.0, open_low=True)
        # checked at each registration, so that the error names the releaser that is too much
        if (named := sum(filter(None, [*self._shares, share]))) > 1 + SLACK:
            raise BudgetError(f"shares of the budget add up to {named:g}, more than 1")
        self.releasers.append(WithoutAxis(releaser) if self._without_axis else Handle(releaser))
        self._shares.append(share)

    def seal(self) -> None:
        """Calibrate, charge and open every releaser; a second call does nothing.

        Raises:
            BudgetExceeded: If the plans exceed the budget; then nothing can be released.
            BudgetError: If the named shares leave nothing for the other releasers.
            AgentError: If the releasers were handed over.
        """
        if self.handed_over:
            raise self._gone()
        if self._sealed:
            return
        # before anything can fail: a second attempt could charge the plans again
        self._sealed = True
        for single in self.parts.values():
            single.seal()
        rhos: list[float | None] = [None] * len(self.releasers)
        if self.budget is not None and self.releasers:
            shares = self._resolved()
            rho = self._whole(shares)
            rhos = [rho * share for share in shares]
            for releaser, share in zip(self.releasers, shares):
                # charged before the noise is drawn: a release that cannot be paid is not made
                basis = _basis(behind(releaser), self.noise)
                for event in Composition.of(*[releaser.cost(rho * share)] * self.copies).events:
                    self.ledger.charge(event, what=releaser.what, basis=basis)
        for releaser, part in zip(map(behind, self.releasers), rhos):
            # exact releasers draw nothing
            noise = self.noise or NoiseSource.from_seed(0, self.replicates)
            releaser.rho = part
            # a source of its own, so that no releaser's draws depend on the calls of another
            releaser.open(part, noise.spawn())
        for releaser in map(behind, self.releasers):  # all or none
            releaser.opened = True

    def _gone(self) -> AgentError:
        return AgentError(f"these releasers were handed over: {self.handed_over}")

    def _resolved(self) -> list[float]:
        named = sum(filter(None, self._shares))
        open_ = self._shares.count(None)
        if open_ and named >= 1 - SLACK:
            raise BudgetError(
                "the named shares take the whole budget and leave nothing for "
                + ", ".join(r.what for r, s in zip(self.releasers, self._shares) if s is None)
            )
        rest = (1.0 - named) / open_ if open_ else 0.0
        return [rest if share is None else share for share in self._shares]

    def _whole(self, shares: Sequence[float]) -> float:
        """Return the total rho of all plans; nominal for mechanisms without a zCDP bound."""
        rho = self.most_rho
        budget = self.budget
        assert budget is not None
        if rho <= 0.0:
            raise BudgetError(f"an earlier release takes the whole budget {budget}")
        if self.ledger.budget is None or budget.rho is not None:
            return rho

        def costs(rho: float) -> list[Event]:
            once = [r.cost(rho * share) for r, share in zip(self.releasers, shares)]
            return [*self.ledger.inherited.events, *once * self.copies]

        # then `most_rho` is exact and a search could only lose digits
        exact = all(event.gaussian_mu is not None for event in costs(rho))
        if exact or costs(rho) == costs(0.5 * rho):  # nothing left to calibrate
            return rho
        return fit_rho(budget, costs)

    def inherit(self, guarantee: Guarantee | None, *, what: str) -> None:
        """Charge an earlier release that the agent starts from, such as a prior.

        Its records may occur again, so the guarantee is for both together. Nothing is charged
        without a budget, or if the earlier release was not private.

        Args:
            guarantee: Guarantee of the earlier release.
            what: Name of the release in the ledger.

        Raises:
            BudgetError: If that guarantee does not imply the agent's notion, unit and relation.
            BudgetExceeded: If it cost more than the budget.
        """
        if guarantee is None or self.budget is None:
            return
        wanted = (self.notion, self.unit, self.relation)
        # a weaker promise about the earlier release would be lost in the sum
        if guarantee.curve is None or not guarantee.covers(*wanted):
            raise BudgetError(
                f"{what}: {guarantee} does not protect the {self.unit} as this agent must: "
                f"{' '.join(wanted)}"
            )
        for event in guarantee.curve.events:
            self.ledger.charge(event, what=what, basis=guarantee.basis, earlier=True)

    def charge(self, event: Event, *, what: str) -> None:
        """Charge a release whose cost the caller computed.

        The basis of the guarantee is then "declared".

        Raises:
            BudgetExceeded: If the total would exceed the budget; nothing may be released.
            BudgetError: If the curators of single replicates have the budget.
            AgentError: If the releasers were handed over.
        """
        if self.handed_over:
            raise self._gone()
        if self.parts:
            raise BudgetError(f"{what}: the curators of single replicates have the budget")
        for each in Composition.of(*[event] * self.copies).events:
            self.ledger.charge(each, what=what, basis="declared")

    def as_printed(self, source: str) -> None:
        """Remove the bound, to use a paper's printed noise, which may cost more than claimed.

        The ledger records the true cost, and the basis of the guarantee is "as printed".

        Args:
            source: Paper, theorem or algorithm.
        """
        self.ledger.lift(source)

    def hand_over(self, why: str) -> None:
        """End the releases of this curator, because a checkpoint or another process continues them.

        Without a budget nothing is private, and nothing changes.

        Args:
            why: Reason, for the message of each later use.
        """
        if not self.private:
            return
        self.handed_over = why
        # every use asks `ready`, which then raises
        for releaser in map(behind, self.releasers):
            releaser.opened = False
        for part in self.parts.values():
            part.hand_over(why)

    def disclose(self, what: str) -> None:
        """Record that protected data are released without noise: no guarantee remains."""
        self.ledger.disclose(what)
        for part in self.parts.values():
            part.disclose(what)

    @property
    def charges(self) -> list[tuple[int, int]]:
        """Numbers of charges and of disclosures so far, of this curator and of its parts."""
        ledgers = [one.ledger for one in (self, *self.parts.values())]
        return [(len(ledger.entries), len(ledger.disclosed)) for ledger in ledgers]

    @property
    def guarantee(self) -> Guarantee | None:
        """Guarantee of everything charged; None without a budget.

        Raises:
            BudgetError: If nothing was charged, because there is no releaser; or the curators of
                single replicates have plans of which none costs most at every delta.
        """
        if self.budget is None:
            return None
        if not self.handed_over:
            self.seal()
        parts = [part.guarantee for part in self.parts.values()]
        if parts:  # separate data sets: the weakest guarantee holds for all
            each = [guarantee for guarantee in parts if guarantee is not None]
            weakest = _weakest(each)
            stated = [g.basis for g in each if g.basis != "computed"]
            clauses = [clause for g in each for clause in g.provisos]
            return replace(
                weakest,
                basis="; ".join(dict.fromkeys(stated)) or weakest.basis,
                provisos=tuple(dict.fromkeys([*self.provisos, *clauses])),
            )
        if not self.ledger.charged:
            raise BudgetError(
                f"the budget {self.budget} was never charged: the agent made no releaser with its "
                "curator, so nothing that it learns from is private"
            )
        typed = [clause for r in self.releasers for clause in r.proviso.split("; ") if clause]
        return replace(self.ledger.guarantee, provisos=(*self.provisos, *typed))

    def clip_counts(self) -> dict[str, NDArray[np.int64]]:
        """Return the number of clipped records per replicate of every sum, for debugging.

        These statistics are not private: never store them with results, and never publish them.
        """
        return {
            f"{number}: {releaser.what}": releaser.clipped_count
            for number, releaser in enumerate(map(behind, self.releasers))
            if hasattr(releaser, "clipped_count")
        }

    def single(self, replicate: int) -> Curator:
        """Return a curator for one replicate, whose releasers have no replicate axis.

        The guarantee of this curator includes it.

        Raises:
            BudgetError: If this replicate has one already, or this curator has releasers or
                charges: both would spend the budget on the same records.
            ParameterError: If there is no such replicate.
            AgentError: If the releasers were handed over.
        """
        if self.handed_over:
            raise self._gone()
        # -1 would be a second name of the last replicate
        replicate = validation.integer("replicate", replicate, 0, self.replicates - 1)
        # two curators of the same records would each spend the whole budget
        if replicate in self.parts or self.releasers or self.ledger.charged:
            raise BudgetError(
                f"the budget of replicate {replicate} is given away already: a replicate has "
                "one curator, and a curator has releasers and charges or parts"
            )
        part = Curator(
            self.budget,
            (self.notion, self.unit),
            noise=None if self.noise is None else self.noise.single(replicate),
            replicates=1,
            horizon=self.horizon,
            relation=self.relation,
            copies=self.copies,
        )
        part._without_axis = True
        # one count of rounds for all replicates: they play in step
        part.rounds = self.rounds
        part.ledger = copy.deepcopy(self.ledger)  # with earlier releases and disclosures
        self.parts[replicate] = part
        return part


def _weakest(each: Sequence[Guarantee]) -> Guarantee:
    """Return the guarantee whose curve is largest at every delta.

    Raises:
        BudgetError: If there is none: one line cannot state two curves that cross.
    """
    for one in each:
        if all(one.curve == other.curve or _costs_more(one, other) for other in each):
            return one
    raise BudgetError(
        "the replicates have different plans, and none of them costs most at every delta: "
        f"{'; '.join(dict.fromkeys(map(str, each)))}. Make the same releasers in every replicate"
    )


def _costs_more(one: Guarantee, other: Guarantee) -> bool:
    """Return whether rho and epsilon of a guarantee are at least those of another one."""
    rho, least = (math.inf if g.rho is None else g.rho for g in (one, other))
    return rho >= least and all(one.epsilon(d) >= other.epsilon(d) for d in COMPARED)


def _basis(releaser: Releaser, noise: NoiseSource | None) -> str:
    """Return what the cost of a releaser rests on: of another package's, on its author's code."""
    if releaser.basis.startswith("declared"):
        return releaser.basis
    part = foreign_part(releaser)
    what = "releaser" if part is releaser else "mechanism"
    if part is None and noise is not None and not of_this_distribution(type(noise)):
        part = noise
        what = "noise source"
    if part is None:
        return releaser.basis
    kind = type(part)
    return f"declared (the {what} {kind.__qualname__} of {kind.__module__})"


def foreign_part(releaser: Releaser) -> Any:
    """Return the releaser or the part of it whose class is of another package, or None."""
    parts = (releaser, *releaser.parts)
    return next((part for part in parts if not of_this_distribution(type(part))), None)
