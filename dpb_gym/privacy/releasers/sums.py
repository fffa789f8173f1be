"""Private sums of clipped records: a mechanism, a trust model and release times, composed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import BudgetError, HorizonExceeded, ParameterError, shown
from dpb_gym.overrides import overridden
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.events import Event
from dpb_gym.privacy.guarantee import RESPONSES, ROUNDS
from dpb_gym.privacy.noise import NoiseSource, SystemNoise
from dpb_gym.privacy.releasers import device_messages, record_entry
from dpb_gym.privacy.releasers.contributions import ContributionCap, LifetimeClip
from dpb_gym.privacy.releasers.correlated_noise import CorrelatedNoise, make_mechanism
from dpb_gym.privacy.releasers.device_messages import Messages
from dpb_gym.privacy.releasers.mechanism_choice import least_regret
from dpb_gym.privacy.releasers.mechanisms import (
    Bits,
    Correlated,
    Mechanism,
    Message,
    Randomised,
    copied,
)
from dpb_gym.privacy.releasers.record_bounds import Bound, RecordShape, Segment
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.privacy.releasers.release_times import Every, OnRequest, Planned, ReleaseTimes, fixed
from dpb_gym.privacy.releasers.releaser import CuratorProtocol, Releaser, part_of
from dpb_gym.privacy.releasers.secure_aggregation import SecureAggregator, SimulatedAggregator
from dpb_gym.privacy.releasers.sensitivities import bound_of, distance_of
from dpb_gym.privacy.releasers.shuffled_bits import ShuffledBits
from dpb_gym.privacy.releasers.trust_models import (
    PLANNED,
    TRUST_MODELS,
    TRUSTED_CURATOR,
    TrustModel,
)
from dpb_gym.validation import FloatArray

NO_SIZES: NDArray[np.int64] = np.zeros(0, np.int64)


def check_parts(
    curator: CuratorProtocol, trust: TrustModel, times: ReleaseTimes | None, from_log: bool
) -> None:
    """Raise an error unless the parts of a sum are those of the library, which know their cost.

    Raises:
        BudgetError: If an agent makes a sum over a log.
        ParameterError: If a part is of another package.
    """
    if from_log and curator.rounds.of_agent:
        raise BudgetError(
            "a LogSum takes its sensitivity from the caller, who computes it from a whole log; "
            "in an agent take curator.batch_sum, which bounds every record"
        )
    if TRUST_MODELS.get(trust.name) is not trust:
        raise ParameterError("trust must be one of dpb_gym.privacy.releasers.trust_models")
    if times is not None and type(times) not in (OnRequest, Every, Planned):
        raise ParameterError(
            f"times must be OnRequest, Every or Planned, got {shown(times)}; a class "
            "of another package could change the cost"
        )


class Sum(Releaser):
    """Sums of clipped records plus noise: what is added, by whom, and when.

    `curator.batch_sum`, `running_sum`, `weighted_sum`, `shuffled_sum` and `user_sum` compose the
    usual ones.

    Args:
        curator: See `Releaser`.
        width: Length of a vector record, or the shape of a symmetric matrix record.
        mechanism: The noise, see `mechanisms`; by default independent and normal.
        trust: Who adds the noise, see `trust_models`; by default a trusted curator. Planned sums of
            binary responses may trust less, see `mechanism_choice`.
        times: When something is released, see `release_times`; by default on request.
        clip: Bound of the records; a number is the radius of a ball.
        reward: Instead of `clip`: records are numbers in this range times vectors. The vectors
            are public if the curator protects responses only (see `Segment`).
        sensitivity: Overrides the bound's sensitivity, for records of a special form. The guarantee
            then says that it is declared. A `Ball` is shortened to this radius.
        limit: Most records of one user that enter. The releaser counts them by the user ids that
            `add` gets and ignores later ones. Multiplies the sensitivity (erratum R10).
        participations: Instead of `limit`, a number that the releaser does not enforce: if users
            are protected, the guarantee is declared.
        lifetime: Instead of both: every user's contributions to all batches together are clipped
            to this radius, and the sensitivity is twice that. RU (6.1) clip per batch and add noise
            for C, but replacing a user moves every batch with a record of the user by up to 2 C.
        horizon: Largest number of records per replicate; by default the curator's.
        sigma: Standard deviation of the noise, instead of a share of the budget; charged at its
            true cost.
        share: See `Releaser`.
        what: See `Releaser`.
        from_log: Whether library code computes one record from a whole log and bounds what each
            unit of the log contributes, so that `sensitivity` is enforced. Not for agents.

    Attributes:
        basis: See `Guarantee`: "declared" if the sensitivity rests on a number that the releaser
            does not enforce.
        sensitivity: Largest 2-norm distance between the records of two neighbours.
        sigma: Standard deviation of the noise per coordinate of the row; 0 if exact. Where devices
            randomise their messages alone it is that of a message.
        rounds: Records per replicate so far.
        releases: Number of releases so far; of a running sum always 0.
        clipped_count: Clipped records per replicate. Not private; for debugging only.
        grid: Records are rounded to multiples of it (system noise only), or 0.
        law: ``"gaussian"``, or ``"laplace"`` in a subclass that adds Laplace noise.
        gain: Sensitivity of all releases together at unit distance of two records.
        refuses_long: Whether `add` rejects a direction longer than 1. True where directions are
            public and without a budget. A protected one is clipped, as an error would disclose it.
        enforced: Whether library code enforces the sensitivity.
        pure: Whether messages are private for any two records.
        steps: Number of releases of a running sum.
        device_mechanisms: What devices do in each batch of messages.
        side: Part of a split session. ``"device"``: a record becomes the message `mail`.
            ``"server"``: records are placeholders, and `mail` is received, if there is one.
            ``"replica"``: records are placeholders, and `coming` has the releases. ``""``:
            records are turned into messages and received, as in simulations.
        mail: Message ``(B, n)``, or None.
        sent: Newest messages that devices randomised alone, or None.
        past: Releases of a split session: ``round``, ``devices`` and ``sum``, JSON values.
        coming: Releases that a replica has still to make.
        aggregator: The secure aggregation; a `SimulatedAggregator` by default.

    Raises:
        ParameterError: If a parameter is out of range, or the records have no bound.
        BudgetError: If the trust model does not allow the sum.
    """

    evolves: ClassVar[tuple[str, ...]] = (
        "rounds", "releases", "clipped_count", "_total", "_released", "_rows", "_sum", "_pending",
        "_held", "_aged", "_at", "_block", "_scratch",
        "mail", "past", "coming", "sent", "_own", "_along", "_opened", "_stated",
    )  # fmt: skip
    law = "gaussian"
    counts_users = True
    gain = 1.0
    least_weight = 1.0
    pure = False
    counted = True
    releases = 0
    _sigma = 0.0
    _scale = 0.0  # of the correlated noise
    _plan: Any = None
    _mechanism: CorrelatedNoise | Message
    _bits_sent: ShuffledBits  # of a batch that is shuffled on request
    _numbers: Segment | None = None  # range of numbers, if messages are about numbers
    _along: FloatArray  # their directions

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        mechanism: Mechanism | None = None,
        trust: TrustModel = TRUSTED_CURATOR,
        times: ReleaseTimes | None = None,
        clip: Bound | float | None = None,
        reward: tuple[float, float] | None = None,
        sensitivity: float | None = None,
        limit: int | None = None,
        participations: int | None = None,
        lifetime: float | None = None,
        horizon: int | None = None,
        sigma: float | None = None,
        share: float | None = None,
        what: str = "sum",
        from_log: bool = False,
    ) -> None:
        check_parts(curator, trust, times, from_log)
        self.trust = trust
        # copies of the fields alone, so that nothing else of an instance counts
        self.times: ReleaseTimes = replace(times or OnRequest())
        self.mechanism: Mechanism = copied(mechanism or self._usual_mechanism(curator))
        # the facts that parts read before the curator knows this releaser
        self.curator = curator
        self.what = what
        self.part = part_of(share)

        # a copy of the fields: a subclass could return values without noise
        if isinstance(width, RecordShape):
            self.shape = RecordShape(width.dim, width.symmetric)
        else:
            self.shape = RecordShape(width)
        self.clip = bound_of(clip, reward, self.shape)
        horizon = curator.horizon if horizon is None else horizon
        self.horizon = validation.optional(validation.integer, "horizon", horizon, 1)
        self.printed_sigma = validation.optional(
            validation.real, "sigma", sigma, 0.0, open_low=True
        )
        self.refuses_long = curator.unit in RESPONSES or not curator.private
        self.enforced = from_log or lifetime is not None
        self._bound_records(sensitivity, limit, participations, lifetime)
        if mechanism is None and lifetime is None and isinstance(self.times, Planned):
            self.trust, self.mechanism = least_regret(self, trust, self.times)

        rows = (curator.replicates, self.shape.width)
        self.rounds = 0
        self.grid = 0.0
        self.clipped_count: NDArray[np.int64] = np.zeros(curator.replicates, np.int64)
        self._total = np.zeros(rows)
        self._released = np.zeros(rows)
        self._rows = np.zeros(rows)
        self._compose()
        super().__init__(curator, share=share, what=what)

    def _bound_records(
        self,
        sensitivity: float | None,
        limit: int | None,
        participations: int | None,
        lifetime: float | None,
    ) -> None:
        """Set how far the records of one unit can move the sum, and what ensures it."""
        self._cap = None if limit is None else ContributionCap(limit, self.curator.replicates)
        self._clip: LifetimeClip | None = None
        if lifetime is not None:
            self._clip = self._lifetime_clip(self.curator, lifetime)
            sensitivity = self._clip.sensitivity
        participations = validation.optional(
            validation.integer, "participations", participations, 1
        )
        most = participations if self._cap is None else self._cap.limit
        self.records_per_unit = most or 1
        if most is None and self.curator.unit not in ROUNDS:
            self.counted = False
        distance = distance_of(
            self.curator,
            self.clip,
            given=sensitivity,
            limit=limit,
            participations=participations,
            enforced=self.enforced,
            what=self.what,
        )
        self.sensitivity = distance.sensitivity
        self.radius = distance.radius
        self.basis = distance.basis
        self.proviso = distance.proviso

    def _usual_mechanism(self, curator: CuratorProtocol) -> Mechanism:
        if not isinstance(self.times, Every):
            return PLANNED[self.trust.name]()
        return Correlated("binary-tree" if curator.system_noise else "blt")

    def _compose(self) -> None:
        """Check that the parts fit each other and the records, and make the state they need."""
        times = self.times
        mechanism = self.mechanism
        # whole batches are shuffled in simulations, whose budget need not name a shuffler
        whole = isinstance(mechanism, Bits) and mechanism.batch is not None
        self.trusts = ("curator", "shuffler") if whole else (self.trust.name,)
        if self.trust.per_record:
            # messages that devices randomise alone need no trust, so every budget admits them
            self.trusts = tuple(TRUST_MODELS)
        fits = whole or self.trust.name in mechanism.trusts
        fits = fits and isinstance(mechanism, Correlated) == isinstance(times, Every)
        fits = fits and whole <= isinstance(times, OnRequest)
        if not fits or (self.trust.devices and not isinstance(times, Planned)):
            raise ParameterError(
                f"{self.what}: the mechanism {mechanism.name!r} and the trust model "
                f"{self.trust.name!r} do not fit releases of {type(times).__name__}; take a sum of "
                "the curator, such as curator.weighted_sum"
            )
        self.shuffled = mechanism.shuffled
        mechanism.check(self)
        if isinstance(times, OnRequest):
            self._compose_requests(times)
        elif isinstance(times, Every):
            assert isinstance(mechanism, Correlated)
            self.steps = times.steps(self.horizon)
            self._mechanism = make_mechanism(mechanism.name, self.steps)
            self.gain = self._mechanism.gain
            self._pending = np.zeros_like(self._total)
        else:
            self._sum = np.zeros_like(self._total)
            self._plan = times.schedule
            # a function would be no data; the plan replaces it when the scale is known
            self.times = Planned(None, times.model)
            if self.trust.devices:
                self._compose_messages(times)
            else:
                self._compose_schedule(times)

    def _compose_requests(self, times: OnRequest) -> None:
        self.cumulative = times.cumulative
        self.sampling = times.sampling
        self._held = 0  # batches in a cumulative release
        self._aged = 0  # those of earlier blocks
        self._at = 0  # records at the last release
        self._block = np.zeros_like(self._released)
        if isinstance(self.mechanism, Bits):
            assert self.mechanism.batch is not None
            self.batch = self.mechanism.batch
            self.levels = self.mechanism.levels_of(self.batch, self.shape.width)
        if times.sampling == 1:
            return
        if self._clip is not None:
            raise ParameterError("every record enters a sum of clipped users: leave sampling out")
        if self.mechanism.shuffled:
            raise ParameterError("shuffled sums have their own noise: leave sampling and sigma out")
        single = self.records_per_unit == 1 and self.curator.unit in RESPONSES
        if not (single and isinstance(self.clip, Segment)):
            raise ParameterError(
                "sampling is for rewards along public directions, one record of each unit"
            )
        if self.curator.system_noise:
            raise ParameterError("sampling needs noise='seeded': its accounting is continuous")

    def _compose_schedule(self, times: Planned) -> None:
        plan = times.schedule
        if isinstance(plan, Schedule):
            self._plan = fixed(plan)
        if not self.curator.system_noise:
            return
        # rounding to the grid depends on the smallest weight, so fix the schedule before it
        assert plan is not None
        if not isinstance(plan, Schedule):
            plan = plan(gaussian_sigma(self.curator.most_rho, self.sensitivity))
            self._plan = fixed(plan)
        # a record is rounded twice: when it is added, and in the weighted sum of its batch
        least = float(np.abs(plan.weights).min())
        self.least_weight = least / (1.0 + least)

    def _compose_messages(self, times: Planned) -> None:
        if times.model is None:
            raise BudgetError(
                f"{self.what}: this agent's releases are planned for a trusted curator only "
                "(weighted_sum without a model); give a budget without @"
            )
        self.model = times.model
        self.gain = self.mechanism.gain(self)
        self.pure = self.mechanism.is_pure(self)
        if isinstance(self.mechanism, Randomised):
            self._numbers = self.mechanism.numbers_of(self)
        self._plan = fixed(self.mechanism.plan(self, times.model))
        # what rests on no distance of two records needs none that is declared
        declared = "" if self.pure else self.proviso
        self.proviso = "; ".join(filter(None, [declared, self.mechanism.proviso]))
        self.side = ""
        self.mail: Messages | None = None
        self.sent: Messages | None = None
        self.past: list[dict[str, Any]] = []
        self.coming: list[dict[str, Any]] = []
        self.aggregator: SecureAggregator = SimulatedAggregator()
        self._opened = -1  # newest batch that the aggregator was opened for

    def _lifetime_clip(self, curator: CuratorProtocol, radius: float) -> LifetimeClip:
        if curator.unit == "user-round":
            raise ParameterError(
                "whose round is whose is public where users' sums are clipped; the unit "
                "'user-round' protects that too"
            )
        self._scratch = np.zeros((curator.replicates, self.shape.width))
        # rounding moves each batch's sum by half a cell per coordinate in both neighbours, and a
        # user may be in as many batches as there are rounds
        self.least_weight = 1.0 / math.sqrt(self.horizon or 1)
        return LifetimeClip(self.shape.width, curator.replicates, radius)

    # ---------------------------------------------------------------- plan

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        """Return sigma, the grid (0: none) and the cost of spending `rho`."""
        return self.mechanism.scales(self, rho, self._sizes)

    @property
    def _sizes(self) -> NDArray[np.int64]:
        """Records of each batch of messages."""
        return self._plan.sizes if isinstance(self._plan, Schedule) else NO_SIZES

    @property
    def per_round(self) -> int:
        """Number of records of one round that the sensitivity covers.

        If users are protected, `participations` and `limit` count a user's rounds.
        """
        return self.records_per_unit if self.curator.unit in ROUNDS else 1

    def cost(self, rho: float) -> Event:
        sigma, _, event = self._scales(rho)
        times = self.times
        return times.cost(self, sigma, event) if isinstance(times, OnRequest) else event

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._noise = noise
        if rho is not None:
            self._sigma, self.grid, _ = self._scales(rho)
        if self.grid and isinstance(noise, SystemNoise):
            longest = None if self.clip is None else self.clip.longest
            noise.use_grid(self.grid, self.horizon, longest)

        if isinstance(self.times, OnRequest):
            if rho is None:
                self.sampling = 1.0  # exact sums have all records
            self._bits = noise.spawn() if self.sampling < 1 else None
            if rho is not None and self.mechanism.shuffled:
                assert isinstance(self.mechanism, Bits)
                (self._bits_sent,) = self.mechanism.messages(self, rho, NO_SIZES)
        elif isinstance(self.times, Every):
            self._start_correlated(noise)
        elif self.trust.devices:
            assert rho is not None  # a curator without a budget makes other sums
            self._start_messages(rho)
        else:
            self._start_schedule()

    def _start_correlated(self, noise: NoiseSource) -> None:
        if self._sigma:
            draws = noise.stream(self.shape.width, self._sigma if self.grid else 0.0)
            assert isinstance(self._mechanism, CorrelatedNoise)
            self._mechanism.start(draws, (self.replicates, self.shape.width))
            # system noise is drawn with its scale, on the grid
            self._scale = 1.0 if self.grid else self._sigma

    def _start_schedule(self) -> None:
        plan = self._plan
        self._schedule = plan if isinstance(plan, Schedule) else fixed(plan(self._sigma))
        self._plan = self._schedule
        # negated, so that a cost that is no number is refused
        if self._sigma and not self._schedule.cost <= 1.0 + 1e-12:
            raise ParameterError(
                f"{self.what}: the schedule costs a record {self._schedule.cost:.4g} times what "
                "one release does, which is what is charged; take smaller weights or scales"
            )

    def _start_messages(self, rho: float) -> None:
        self._schedule = self._plan
        width = 1 if self._numbers else self.shape.width
        self._own = np.zeros((self.replicates, width))
        self.device_mechanisms = self.mechanism.messages(self, rho, self._sizes)
        if self.trust.per_record:
            self._mechanism = self.device_mechanisms[0]  # the same in every batch
        else:
            stds = np.array([batch.sigma for batch in self.device_mechanisms])
            self._schedule = replace(self._schedule, scales=self._sigma / stds)
        self._stated = self._schedule.scales.copy()

    def plain_options(self, given: dict[str, Any]) -> dict[str, Any]:
        times = given.get("times")
        # a sum that its constructor refused is described as it was asked for
        if not isinstance(times, Planned) or "trust" not in vars(self):
            return given
        if callable(times.schedule):
            # the schedule that the function returned for the sigma of this plan
            times = replace(times, schedule=self.schedule)
        # as chosen here, since the choice depends on the function
        return {**given, "times": times, "trust": self.trust, "mechanism": self.mechanism}

    @property
    def parts(self) -> tuple[object, ...]:
        """Parts on whose code the cost rests, besides the class of the sum."""
        return (self.mechanism,)

    @property
    def numbers(self) -> Segment | None:
        """Range of the numbers that messages are about, along directions without noise, or None."""
        return self._numbers

    @property
    def clips_users(self) -> bool:
        """Whether users' contributions are clipped to a lifetime budget."""
        return self._clip is not None

    @property
    def sigma(self) -> float:
        self.ready()
        return self._sigma

    # ---------------------------------------------------------------- records

    def add(
        self, records: ArrayLike, along: ArrayLike | None = None, users: ArrayLike | None = None
    ) -> None:
        """Add one record per replicate.

        Args:
            records: ``(B, *shape)``; with `along`, one number per replicate ``(B,)``.
            along: Public vectors ``(B, width)`` that the numbers multiply. For symmetric
                records: vectors v ``(B, d)`` or ``(B, K, d)``, public or not; the record is
                ``number * sum v v'``.
            users: User ids ``(B,)``, needed with a `limit` or `lifetime`; -1 where nobody has a
                record. Every record of a user counts, also one of zeros: that it is zero can be
                protected. Public directions of zeros do not count.

        Raises:
            HorizonExceeded: Beyond the declared horizon; nothing changes.
            ParameterError: On a wrong shape, NaN or infinity, a direction longer than 1 (see
                `refuses_long`), or a matrix that is not symmetric or, for a `PSDBall`, not
                positive semidefinite; nothing changes.
        """
        self.ready()
        if self._clip is not None:
            self._scratch[:] = 0.0
            self._take(records, along, self._scratch)
            self._clip.add(users, self._scratch)
            return
        if self._cap is not None:
            counted = None
            if along is not None and self.curator.unit in RESPONSES:
                counted = np.asarray(along).reshape(self.replicates, -1).any(axis=1)
            late = ~self._cap.admit(users, counted)
            records = np.where(late.reshape(-1, *[1] * (np.ndim(records) - 1)), 0.0, records)
        self._add(records, along)

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        """Add one record per replicate that users' limits admit, and release if that is due."""
        if self.trust.devices:
            self._send(records, along)
        else:
            if isinstance(self.times, OnRequest) and self._bits is not None:
                included = self._bits.uniform() < self.sampling
                along = np.where(included[:, None], np.asarray(along, np.float64), 0.0)
            self._take(records, along, self._open_rows)
        self._release_if_due()

    def _send(self, records: ArrayLike, along: ArrayLike | None) -> None:
        """Turn records into messages, which add up to the open batch."""
        if self._numbers:
            self._check_room(1)
            device_messages.number_record(self, records, along)
            self.rounds += 1
        else:
            self._own = np.zeros_like(self._rows)
            self._take(records, along, self._own)
            if self.side in ("server", "replica"):
                self._own[:] = 0.0  # a placeholder is no record
        device_messages.send(self)

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        """Ingest the records of several rounds, as `add` does one round after another.

        Args:
            records: Numbers ``(n, B)``, or without directions rows ``(n, B, width)``.
            along: Their directions ``(n, B, width)``.

        Raises:
            ParameterError: On a wrong shape; nothing changes. Otherwise as for `add`.
        """
        self.ready()
        record_entry.check_rounds(self, records, along)
        if overridden(self, Sum, "add") or not self._takes_rounds(len(records), along):
            for t, record in enumerate(records):
                self.add(record, None if along is None else along[t])
            return
        start = 0
        while start < len(records):
            left = self._until_release()
            stop = len(records) if left is None else min(len(records), start + left)
            part = slice(start, stop)
            directions = None if along is None else along[part]
            self._take_rounds(records[part], directions, self._open_rows)
            self._release_if_due()
            start = stop

    def _takes_rounds(self, n: int, along: FloatArray | None) -> bool:
        """Return whether a kernel adds so many rounds at once with the bits of `add`."""
        if self.trust.devices or self._clip is not None:
            return False
        if self.shape.symmetric and along is None:
            return False
        if isinstance(self.times, OnRequest):
            return self._bits is None
        if isinstance(self.times, Every):
            # noise of several intervals is drawn step by step
            left = self.times.until(self.rounds, 0)
            return self.times.rounds > 1 and n <= (left or 0) and along is not None
        return True

    @property
    def _open_rows(self) -> FloatArray:
        """Rows to which records are added until the next release."""
        # a running sum is read at any time, and must not have records of an open interval
        waits = isinstance(self.times, Every) and self.times.rounds > 1
        return self._pending if waits else self._total

    def _take(self, value: ArrayLike, along: ArrayLike | None, into: FloatArray) -> None:
        """Add one round's clipped records to the rows `into` (B, width); see `add`."""
        self._check_room(1)
        record_entry.add_record(self, value, along, into)
        self.rounds += 1

    def _take_rounds(self, records: FloatArray, along: FloatArray | None, into: FloatArray) -> None:
        """Add n rounds' clipped vectors, or squares of vectors, to the rows `into`; see `_take`."""
        self._check_room(len(records))
        if self._cap is not None:
            self._cap.admit(None)  # raises: there are no user ids
        record_entry.add_records(self, records, along, into)
        self.rounds += len(records)

    def _check_room(self, rounds: int) -> None:
        """Raise HorizonExceeded if so many more rounds were not declared."""
        if self.horizon is not None and self.rounds + rounds > self.horizon:
            raise HorizonExceeded(
                f"this releaser was declared for {self.horizon} records per replicate; "
                "nothing was released"
            )

    # ---------------------------------------------------------------- releases

    def _until_release(self) -> int | None:
        """Return how many records can enter before the next release; None: any number."""
        if not isinstance(self.times, Planned):
            return self.times.until(self.rounds, self.releases)
        left = self._schedule.ends[self.releases :][:1] - self.rounds
        return int(left[0]) if len(left) else None

    def _release_if_due(self) -> None:
        """Release after the last record of an interval or of a planned batch."""
        if isinstance(self.times, Planned):
            k = self.releases
            if k < len(self._schedule.ends) and self.rounds == self._schedule.ends[k]:
                self._release_planned()
        elif isinstance(self.times, Every) and self.times.due(self.rounds, 0):
            self._advance()

    def _advance(self) -> None:
        """Add the interval's records to the running sum and draw its noise."""
        if self._open_rows is not self._total:
            self._total += self._pending
            self._pending[:] = 0.0
        if self._scale:
            self._mechanism.advance()  # type: ignore[union-attr]

    def _release_planned(self) -> None:
        """Release the weighted sum so far, or the sum of the batch of messages."""
        k = self.releases
        if self.trust.devices:
            if self.side == "device":
                return
            values, devices = device_messages.closed(self)
            self._released = values.copy()
            if self.side:
                record = {"round": self.rounds, "devices": devices, "sum": values[0].tolist()}
                self.past.append(record)
        else:
            if not self._schedule.carry:
                # a record of disjoint batches pays for one release, so later ones lack it
                self._sum[:] = 0.0
            self._sum += self._rounded(self._schedule.weights[k] * self._total)
            self._released = self._sum.copy()
            if self._sigma:
                std = self._sigma / float(self._schedule.scales[k])
                self._released += self._noise.gaussian(std, self.shape.width)
        self._total[:] = 0.0
        self.releases += 1

    def release(self) -> FloatArray:
        """Close the batch and return its noisy sum, ``(B, *shape)``.

        Raises:
            ParameterError: If no record was added since the last release, or a shuffled batch has
                not exactly `batch` customers, for which the guarantee holds. If releases are not
                made on request: then read `value`.
            AgentError: If the releasers were handed over.
        """
        self.ready()
        if not isinstance(self.times, OnRequest):
            raise ParameterError(f"{self.what} are released by themselves: read value")
        if isinstance(self.mechanism, Bits) and self.rounds - self._at != self.batch:
            raise ParameterError(
                f"a batch of {self.batch} customers is shuffled, not of "
                f"{self.rounds - self._at}; nothing was released"
            )
        if self.rounds == self._at:
            raise ParameterError("no record since the last release: the batch is empty")
        if self._clip is not None:
            self._total += self._rounded(self._clip.close())
        rows = self._noisy() if self._sigma else self._total
        if self.sampling < 1:
            rows = rows / self.sampling
        self._released = self._released + rows if self.cumulative else rows.copy()
        self._total[:] = 0.0
        self._at = self.rounds
        self.releases += 1
        self._held += 1
        return self.value

    def _noisy(self) -> FloatArray:
        """Return the open batch's rows with noise."""
        if self.shuffled:
            ones = self._bits_sent.seen(self._total, self.batch, self._noise)
            return self._bits_sent.unbiased(ones)
        return self._total + self._noise.gaussian(self._sigma, self.shape.width)

    def forget(self) -> FloatArray:
        """End a block of batches and remove the block before it from cumulative releases.

        The earlier block's releases are subtracted with their noise. So this is post-processing,
        and the noise of the remaining batches remains.

        Returns:
            The newest release, without the removed block.

        Raises:
            ParameterError: If releases are not cumulative.
        """
        if not isinstance(self.times, OnRequest) or not self.cumulative:
            raise ParameterError("only cumulative sums have something to forget")
        self._released = self._released - self._block
        self._block = self._released.copy()
        self._held -= self._aged
        self._aged = self._held
        return self.value

    def exact_sums(self, rounds: int) -> tuple[FloatArray, float, float, NDArray[np.int64]]:
        """Leave the next rounds to compiled code, which adds a record and releases every round.

        Returns:
            The cumulative sums ``(B, width)``, to which `dpb_gym.kernels.continual.add_scaled`
            adds, the lowest and highest value of a record, and the counts of clipped records.

        Raises:
            ParameterError: If releases carry noise, are not cumulative, or a batch is open.
        """
        self.ready()
        on_request = isinstance(self.times, OnRequest) and self.cumulative
        exact = on_request and self._sigma == 0.0 and self.rounds == self._at
        if not exact or not isinstance(self.clip, Segment):
            raise ParameterError("only exact cumulative sums of values can be left to others")
        self._check_room(rounds)
        self.rounds += rounds
        self._at = self.rounds
        self.releases += rounds
        self._held += rounds
        return self._released, self.clip.low, self.clip.high, self.clipped_count

    def _rounded(self, rows: FloatArray) -> FloatArray:
        """Return the rows rounded to the grid, if there is one."""
        return np.floor(rows / self.grid + 0.5) * self.grid if self.grid else rows

    @property
    def value(self) -> FloatArray:
        """Newest release, ``(B, *shape)``; zeros before the first.

        A running sum is that at the end of the last full interval.
        """
        if isinstance(self.times, Every):
            self.ready()
            noise = self._total
            if self._scale:
                noise = self._mechanism.noise  # type: ignore[union-attr]
            return self.shape.emit(self._total, noise, self._scale)
        if not self.shape.symmetric:
            return self._released.copy()
        return self.shape.emit(self._released, self._released, 0.0)

    # ---------------------------------------------------------------- what releases carry

    @property
    def noise_std(self) -> float:
        """Standard deviation of the newest release's noise per coordinate; 0 before the first."""
        if isinstance(self.times, OnRequest):
            batches = self._held if self.cumulative else min(self.releases, 1)
            return self.sigma * math.sqrt(batches) / self.sampling
        if isinstance(self.times, Every):
            step = self.rounds // self.times.rounds
            if not (step and self.sigma):
                return 0.0
            return self.sigma * math.sqrt(float(self._correlated.variances(step)[-1]))
        if not self.releases or self.record_std:
            return 0.0
        return self.sigma / float(self.schedule.scales[self.releases - 1])

    @property
    def batches(self) -> int | tuple[Message, ...]:
        """Number of batches closed on request; of messages, `device_mechanisms`."""
        return self.device_mechanisms if self.trust.devices else self.releases

    @property
    def record_std(self) -> float:
        """Standard deviation of noise that every record has along its direction, instead."""
        return self.sigma if self._numbers else 0.0

    @property
    def _correlated(self) -> CorrelatedNoise:
        if not isinstance(self.times, Every):
            raise AttributeError(f"{self.what} are no running sum: their noise is independent")
        assert isinstance(self._mechanism, CorrelatedNoise)
        return self._mechanism

    @property
    def every(self) -> int:
        """Release interval of a running sum in rounds."""
        if not isinstance(self.times, Every):
            raise AttributeError(f"{self.what} are no running sum: they have no interval")
        return self.times.rounds

    @property
    def variances(self) -> FloatArray:
        """Variance of the noise at every step of a running sum at sigma = 1, ``(steps,)``."""
        return self._correlated.variances(self.steps)

    def noise_matrix(self, steps: ArrayLike) -> FloatArray:
        """Return the linear map from independent normals to the noise of some releases.

        Args:
            steps: Numbers of the steps ``(n,)`` of a running sum, from 1; a number n stands for the
                first n.

        Returns:
            Weights ``(n, normals)`` at sigma = 1.
        """
        return self._correlated.matrix(steps)

    @property
    def noise_std_max(self) -> float:
        """Largest standard deviation of the noise over all releases of a running sum."""
        return 0.0 if self.sigma == 0 else self.sigma * math.sqrt(float(self.variances.max()))

    @property
    def schedule(self) -> Schedule:
        """Schedule of planned releases, with the scales of the noise that they have."""
        if not isinstance(self.times, Planned):
            raise AttributeError(f"{self.what} have no schedule: their releases are not planned")
        self.ready()
        return device_messages.stated(self) if self.trust.devices else self._schedule

    # ---------------------------------------------------------------- messages of devices

    def message(self, rows: FloatArray) -> Messages:
        """Return the customers' messages for clipped records ``(B, width)``."""
        return device_messages.mechanism_now(self).of(rows, self._noise)

    def message_parts(self, message: Mapping[str, Any]) -> tuple[Any, int, Messages]:
        """Return the decision, the batch and the values of a device's message.

        Raises:
            ParameterError: If it has other fields, or states another modulus or a later batch.
        """
        return device_messages.message_parts(self, message)

    def check_message(self, messages: Messages) -> None:
        """Raise ParameterError unless devices can have sent the messages ``(B, n)`` of a round."""
        device_messages.check_message(self, messages)

    def become_device(self, noise: NoiseSource | None) -> None:
        """Turn the next record into a message, with noise of this source if it is given."""
        self.side = "device"
        self.mail = None
        self._noise = noise or self._noise

    @property
    def message_width(self) -> int:
        """Numbers of a message in the open batch."""
        width = 1 if self._numbers else self.shape.width
        return device_messages.mechanism_now(self).width(width)

    @property
    def modulus(self) -> int | None:
        """Modulus of the messages of the open batch; None without an aggregator."""
        return getattr(device_messages.mechanism_now(self), "modulus", None)

    @property
    def message_bytes(self) -> int:
        """Size of a message to the aggregator in the open batch."""
        if not self.trust.aggregated:
            raise AttributeError(f"{self.what} have no aggregator")
        self.ready()
        bits = (self.modulus or 1).bit_length() - 1
        return math.ceil(self.shape.width * bits / 8)

    @property
    def header(self) -> dict[str, int]:
        """Public numbers of the open batch, as in a device's message; see `Shuffler`.

        Raises:
            ParameterError: If all batches were released, or there is no shuffler.
        """
        self.ready()
        return device_messages.header_of(self)

    def receive_batch(self, shuffled: Mapping[str, Any]) -> int:
        """Take the output of a `Shuffler` for the open batch; return its number of customers.

        Raises:
            ParameterError: If it is no such output, or belongs to another batch or plan.
        """
        self.ready()
        return device_messages.receive_batch(self, shuffled)
