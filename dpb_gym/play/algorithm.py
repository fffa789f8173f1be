"""The form of an agent: pure functions of one replicate, and what they are planned with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, NamedTuple, dataclass_transform

from dpb_gym import state
from dpb_gym.checkpoint import Policy
from dpb_gym.lazy import of_this_distribution
from dpb_gym.parameters import check_parameters, with_parameters
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo


class Offer(NamedTuple):
    """Context of an assortment: what is known of the items.

    Attributes:
        features: ``(N, d)``.
        revenues: ``(N,)``, -inf for items that cannot be offered.
    """

    features: Any
    revenues: Any


class Candidates(NamedTuple):
    """Context of a recommendation whose candidates can be arms of a pool.

    Attributes:
        features: ``(m, d)``.
        arms: Numbers of their arms ``(m,)``; -1 if candidates are new in every round.
    """

    features: Any
    arms: Any


class Released(NamedTuple):
    """A noisy sum of records, as `Functions.learn` receives it.

    Attributes:
        sum: The newest release, ``(width,)``, or a symmetric matrix.
        std: Standard deviation of its noise per coordinate; 0 if it is exact, and of a running
            sum, whose largest one is known at the start.
        record_std: Standard deviation of noise that every record has along its direction, instead
            (local privacy); 0 otherwise.
        number: Number of the release, from 0.
        records: Records so far. In rejection replay, where which rounds have one is protected, the
            expected number.
        second: Release of the second sums of the plan; ``(0,)`` if there are none.
    """

    sum: Any
    std: float
    record_std: float
    number: int
    records: float
    second: Any


@state.register
class Plan(NamedTuple):
    """What an algorithm has from the curator, and its random numbers. Public.

    Attributes:
        sums: The releaser of the sums of its records, from a method of the curator; or a function
            of the agent's random streams that returns it, for users who draw their own noise.
        directed: Whether records are numbers with directions, for sums of rewards and for
            symmetric matrices w v v'.
        second: The releaser of second sums or of a fit, of vectors, which `Functions.record`
            returns last.
        every: Rounds between releases, for a releaser without a schedule of its own.
        ends: Rounds after which there is a release, instead.
        running: Whether the releaser has a release by itself after every so many rounds.
        forget: Every so many rounds the releaser forgets its older half; 0: never.
        draws: Vectors of random numbers that `Functions.act` gets in a round.
        repeats: Such vectors that `Functions.record` gets.
        dim: Their length; 0 if there are none.
        law: ``"normals"`` (standard) or ``"uniforms"`` on [0, 1).
        users: Whether the releaser counts the rounds of each user.
        cap: Counts each user's rounds; later ones are no part of the sums. None: no limit, or
            the releaser has it.
        scale: Its method ``scale(users, observed, rows)`` scales the directions of a round in
            place, ``(B, width)``, by public user ids, and returns the factors ``(B,)``, which the
            state gets as its field ``weight`` before `Functions.see`. None: no scaling.
    """

    sums: Any
    directed: bool = False
    second: Any = None
    every: int = 1
    ends: tuple[int, ...] = ()
    running: bool = False
    forget: int = 0
    draws: int = 0
    repeats: int = 0
    dim: int = 0
    law: str = "normals"
    users: bool = False
    cap: Any = None
    scale: Any = None


class Functions(NamedTuple):
    """The algorithm of one replicate. All are compiled with `dpb_gym.play.jit`.

    c is what is known before the first round and s the state, both named tuples of numbers and
    arrays. t is the round, from 1. x is the context: features ``(d - 1,)`` in pricing, ``(N, d)``
    in recommendation, an `Offer` in assortment. z are standard normals ``(n, d)``.

    Attributes:
        act: ``act(c, s, t, x, z)`` returns the action.
        record: ``record(c, s, t, x, action, y, z)`` returns what the curator receives, for the
            response y to an action: a vector ``(width,)``, or a number and its direction, and then
            the vector of the second sums, if there are any. No other function sees y.
        learn: ``learn(c, s, released, t)`` updates s with the release after round t.
        see: ``see(c, s, t, x, action)`` updates s with the public part of a round that has a
            response. None: s changes with releases only.
        due: ``due(c, s, t)`` returns whether the sums are released after round t. None: at the
            rounds of the schedule. With `adopt`: whether the second sums are, after `learn`.
        draws: ``draws(c, t)`` returns the number of normal vectors for `act` in round t. None:
            `Plan.draws` in every round.
        image: ``image(c, s, t)`` returns a public symmetric matrix M and a bound of its norm, and
            may update s, before a release: M times the sum is released, with the noise of the sum
            times the bound. None: the sum is released.
        adopt: ``adopt(c, s, release, t)`` updates s with a release of the second sums ``(d,)``,
            for example a fit, after a `learn` that makes it due. None: `learn` receives it.
        shares: ``shares(c, s, t, x)`` returns the probabilities with which `act` chooses each
            candidate, ``(m,)``, for logs. None: they are unknown if `act` gets random numbers.
    """

    act: Callable[..., Any]
    record: Callable[..., Any]
    learn: Callable[..., Any]
    see: Callable[..., Any] | None = None
    due: Callable[..., Any] | None = None
    draws: Callable[..., Any] | None = None
    image: Callable[..., Any] | None = None
    adopt: Callable[..., Any] | None = None
    shares: Callable[..., Any] | None = None


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Algorithm(Policy, ABC):
    """An agent as pure functions of one replicate.

    The functions never receive another replicate, an earlier response, or a record again: the
    `dpb_gym.play.player.Player` has them, and hands each record to the curator once. Annotated
    attributes are parameters, which are checked (`dpb_gym.parameters`).

    Attributes:
        functions: The algorithm.
        player: Class of its player; None: `dpb_gym.play.player.Player`.
        context: Fields of the context that it sees; None for those of the kind. With ``("arms",)``
            x has the numbers of the candidates' arms, ``(m,)``, in a random order of the arms. With
            ``("features", "arms")`` x is a `Candidates`.
        context_of_arms: The same where every round offers the same arms; None: `context`.
    """

    functions: ClassVar[Functions]
    player: ClassVar[Any] = None
    context: ClassVar[tuple[str, ...] | None] = None
    context_of_arms: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        with_parameters(cls)

    def __post_init__(self) -> None:
        check_parameters(self)

    def check(self, problem: ProblemInfo) -> None:
        """Raise `AgentError` if the algorithm cannot play a problem."""

    def functions_for(self, problem: ProblemInfo) -> Functions:
        """Return the functions for a problem, by default those of the class.

        Saved states have no functions, so the choice depends on parameters and problem alone.
        """
        return self.functions

    @abstractmethod
    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        """Create the releaser of the records' sums.

        Args:
            problem: Public facts.
            curator: Creates releasers. Without a budget they are exact.
        """

    @abstractmethod
    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Any, Any]:
        """Return c and s before the first round, named tuples of numbers and arrays.

        A number of s that changes is an array of shape (1,).

        Args:
            problem: Public facts.
            sums: The releaser, after calibration: `sums.sigma` and its schedule are public. With
                second sums the pair of both.
        """


def player_of(made: Any) -> Any:
    """Return the class of the player of an algorithm; None: the usual one.

    It is that of the class, which `by_construction` has looked at.
    """
    return type(made).player


def by_construction(maker: Any) -> bool:
    """Return whether agents made by a class cannot receive raw data.

    Its functions are checked before they run (`dpb_gym.play.purity`). A player of another package
    holds responses, so its code must be audited.
    """
    # a class that is only registered with the ABC is played without a player, and another
    # metaclass could state another player each time
    if type(maker) is not type(Algorithm) or Algorithm not in maker.__mro__:
        return False
    return maker.player is None or of_this_distribution(maker.player)
