"""Which environments exist: id, problem, defaults. Light: imports nothing heavy."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dpb_gym import docstrings
from dpb_gym.errors import DataError, ParameterError, unknown_name
from dpb_gym.problems.base import Problem
from dpb_gym.problems.conditions import CONDITIONS, applicable, with_conditions
from dpb_gym.problems.kinds import kind_of


@dataclass(frozen=True)
class Environment:
    """A registered environment.

    Attributes:
        id: Gymnasium id.
        kind: Problem kind.
        problem: What makes the problem: ``"module:callable"``, or the callable itself.
        defaults: Keyword arguments of the problem under this id.
        summary: One line.
        reveals: What contexts, candidates, `ProblemInfo` and ``info`` tell of people's data,
            whatever the agent guarantees; empty if nobody has said.
    """

    id: str
    kind: str
    problem: str | Callable[..., Problem]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    reveals: str = ""

    @property
    def interface(self) -> tuple[str, ...]:
        """Keyword arguments of the Gymnasium shell alone."""
        return ("obs_mode", *kind_of(self.kind).interface)

    @cached_property
    def factory(self) -> Any:
        """The callable that makes the problem.

        Raises:
            ParameterError: If there is no such module or name.
        """
        if callable(self.problem):
            return self.problem
        module, _, name = self.problem.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ParameterError(f"{self.id}: cannot load {self.problem}: {error}") from error

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the problem and its conditions, with their defaults."""
        return {**applicable(self.kind), **docstrings.defaults(self.factory), **self.defaults}

    @property
    def meanings(self) -> dict[str, str]:
        """What the docstrings of the problem and of the conditions say of each parameter."""
        laid = {name: docstrings.parse(found).summary for name, found in CONDITIONS.items()}
        return laid | docstrings.parameters(self.factory)

    def make_problem(self, **kwargs: Any) -> Problem:
        """Makes the problem.

        Raises:
            ParameterError: If a keyword argument is unknown or invalid.
        """
        known, own = self.parameters, inspect.signature(self.factory).parameters
        passes_on = any(p.kind is p.VAR_KEYWORD for p in own.values())
        for key in kwargs:
            if key not in known and key not in CONDITIONS and not passes_on:
                raise ParameterError(
                    f"{self.id} has no parameter {key!r}; the problem takes "
                    f"{', '.join(known)}; the environment {', '.join(self.interface)}"
                )
        given = {**self.defaults, **kwargs}
        conditions = {k: given.pop(k) for k in CONDITIONS if k in given and k not in own}
        return with_conditions(self.factory(**given), conditions)


_ASSORTMENT = "dpb_gym.problems.assortment:AssortmentProblem"
_PRICING = "dpb_gym.problems.pricing:PricingProblem"
_RECOMMENDATION = "dpb_gym.problems.recommendation:RecommendationProblem"
_MULTI_ARMED = "dpb_gym.problems.multi_armed:MultiArmedProblem"
_REPLAY = "dpb_gym.envs.replay:replay_problem"
_EXPEDIA = "dpb_gym.envs.expedia:expedia_problem"

_SIMULATED = "nothing: customers are simulated, and contexts do not depend on responses"
RATINGS = (
    "item features are an SVD of the training users' ratings (private with feature_epsilon); "
    "candidates are items that the person has rated; n_arms, rating_uses and person_uses count "
    "ratings; expected_reward and oracle_reward in info are ratings of the person"
)
_SEARCHES = (
    "contexts are searches of the log; items, their features, scaling and prices are the log's; "
    "expected_reward, oracle_reward and regret in info follow from parameters that were fitted to "
    "its choices without noise"
)

ENVIRONMENTS: dict[str, Environment] = {
    e.id: e
    for e in (
        Environment(
            "DPB/Assortment-v0",
            "assortment",
            _ASSORTMENT,
            summary="MNL assortment of at most K of N items (Cho & Sun)",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/ExpediaAssortment-v0",
            "assortment",
            _EXPEDIA,
            summary="Assortment of hotels for searches from Expedia's log (data=NAME or path)",
            reveals=_SEARCHES,
        ),
        Environment(
            "DPB/Pricing-v0",
            "pricing",
            _PRICING,
            summary="Personalised pricing, logistic or Gaussian demand (Chen, Simchi-Levi & Wang)",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/PricingTwoType-v0",
            "pricing",
            _PRICING,
            defaults={"dim": 2, "customers": "two-type"},
            summary="Two customer types: plain DP forces linear regret (Proposition 1)",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/Recommendation-v0",
            "recommendation",
            _RECOMMENDATION,
            summary="Linear contextual recommendation, 5 of 100 arms (Riyazat & Ukwatta)",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/RecommendationRankDeficient-v0",
            "recommendation",
            _RECOMMENDATION,
            defaults={"design": "blocks", "rank": 5},
            summary="Candidates confined to one rank-5 subspace for 500 rounds at a time",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/RecommendationHighDim-v0",
            "recommendation",
            _RECOMMENDATION,
            defaults={"dim": 50},
            summary="Linear contextual recommendation with d = 50",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/MultiArmed-v0",
            "recommendation",
            _MULTI_ARMED,
            summary="Multi-armed bandit: the same 10 arms every round, one-hot features",
            reveals=_SIMULATED,
        ),
        Environment(
            "DPB/MovieLensReplay-v0",
            "recommendation",
            _REPLAY,
            defaults={"data": "synthetic-movielens", "dim": 50},
            summary="Recommendation replayed from MovieLens ratings (data=NAME or path)",
            reveals=RATINGS,
        ),
        Environment(
            "DPB/JesterReplay-v0",
            "recommendation",
            _REPLAY,
            defaults={"data": "synthetic-jester", "dim": 50},
            summary="Recommendation replayed from Jester ratings (data=NAME or path)",
            reveals=RATINGS,
        ),
    )
}


OF_LOG = re.compile(r"Log/(Assortment|Pricing|Recommendation)-[a-zA-Z0-9]+-[0-9a-f]{8}-v0")


def environment(env_id: str) -> Environment:
    """Returns a registered environment; one of a log that is not here can only be shown.

    Raises:
        UnknownNameError: If the id is not ours; the message offers close matches.
    """
    key = env_id.removeprefix("dpb_gym:") if isinstance(env_id, str) else None
    if key in ENVIRONMENTS:
        return ENVIRONMENTS[key]
    made = OF_LOG.fullmatch(key or "")
    if made is None:
        raise unknown_name("environment", env_id, ENVIRONMENTS)
    return Environment(made[0], made[1].lower(), lost_log, {"log": key}, "made of a log elsewhere")


def lost_log(log: str, horizon: int = 10_000) -> Problem:
    """Stands for the problem of a log that another process has read, so that results are shown.

    Raises:
        DataError: Always.
    """
    raise DataError(
        f"{log} was made of a log in another process: call dpb_gym.from_log with that log and the "
        "same settings first, which gives the same id"
    )


def make_problem(env_id: str, **kwargs: Any) -> Problem:
    """Makes the problem behind an environment id; see `Environment.make_problem`."""
    return environment(env_id).make_problem(**kwargs)
