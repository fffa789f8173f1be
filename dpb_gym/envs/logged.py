"""From a log to an environment in one call."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dpb_gym.envs.catalogue import ENVIRONMENTS, RATINGS, make_problem
from dpb_gym.envs.registration import register_environment
from dpb_gym.envs.replay import replay_problem
from dpb_gym.errors import ParameterError
from dpb_gym.problems.logged import LoggedAssortment, LoggedPricing

PROBLEMS = ("pricing", "assortment", "recommendation")
_FITTED = (
    "contexts are customers of the log, person_uses counts their rows; bounds that were not "
    "declared are the log's; expected_reward, oracle_reward and regret in info follow from "
    "parameters that were fitted to it without noise"
)


class LogEnvironment(str):
    """The id of an environment that was made of a log; `print` its `report`."""

    __slots__ = ()

    def summary(self) -> dict[str, Any]:
        """How the model was fitted and how well it knows customers that it has not seen."""
        return make_problem(self).summary()

    @property
    def report(self) -> str:
        """The summary as text, calibration as predicted and observed chances."""
        lines = [str(self)]
        for key, value in self.summary().items():
            if key == "calibration":
                pairs = ", ".join(f"{predicted:.2f}: {seen:.2f}" for predicted, seen, _ in value)
                lines.append(f"  calibration (predicted: observed): {pairs}")
            elif key == "notes":
                lines += [f"  note: {note}" for note in value]
            elif isinstance(value, Mapping):
                inside = ", ".join(f"{name} {number:.4g}" for name, number in value.items())
                lines.append(f"  {key.replace('_', ' ')}: {inside}")
            else:
                shown = f"{value:.4g}" if isinstance(value, float) else value
                lines.append(f"  {key.replace('_', ' ')}: {shown}")
        return "\n".join(lines)


def from_log(
    source: Any,
    problem: str,
    *,
    horizon: int = 10_000,
    ridge: float = 1.0,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    outside: Any = None,
    revenue: str | None = None,
    capacity: int | None = None,
    **columns: Any,
) -> LogEnvironment:
    """Makes an environment of a log: its customers arrive, a model fitted to it responds.

    The fit reads the log without noise: it protects nobody in it. What is studied in the
    environment is what privacy would cost from now on.

    Args:
        source: A frame (pandas, polars, pyarrow), a mapping of arrays, the path of a CSV or
            Parquet file, or a table that `dpb_data` has read.
        problem: ``"pricing"`` (`dpb_gym.problems.logged.LoggedPricing`), ``"assortment"``
            (`LoggedAssortment`) or ``"recommendation"`` (replay of ratings).
        horizon: Rounds T of the environment, by default.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features, by name; for pricing also of
            ``"price"``. What is not declared is read off the log.
        outside: Assortment: the item that stands for buying nothing.
        revenue: Assortment: the attribute that an item earns.
        capacity: Assortment: items offered at most; half of them, at most 10, by default.
        **columns: Names of the columns: see `dpb_data.prices`, `dpb_data.choices` and
            `dpb_data.ratings`.

    Returns:
        The environment's id, for `gym.make`, `evaluate` and `make_problem`. The same log and
        settings give the same id.

    Raises:
        DataError: If the log is damaged or cannot tell what is asked; the message says why.
        ParameterError: If an argument is invalid.

    Example:
        >>> import dpb_gym
        >>> loans = dpb_gym.from_log("synthetic-loans", "pricing", features=["term", "score"])
        >>> loans
        'Log/Pricing-SyntheticLoans-02ed9732-v0'
        >>> round(loans.summary()["price_elasticity"], 2)
        -2.85
    """
    import dpb_data

    if problem not in PROBLEMS:
        raise ParameterError(f"problem must be one of {', '.join(PROBLEMS)}, got {problem!r}")
    settings: dict[str, Any] = {"horizon": horizon}
    if problem != "recommendation":
        settings |= {"ridge": ridge, "bounds": tuple(sorted((bounds or {}).items()))}
    elif bounds is not None:
        raise ParameterError("ratings have no bounds: declare rating_range=(lowest, highest)")
    if problem == "assortment":
        settings |= {"outside": outside, "revenue": revenue, "capacity": capacity}
    elif (outside, revenue, capacity) != (None, None, None):
        raise ParameterError("outside, revenue and capacity belong to problem='assortment'")
    readers = {
        "pricing": dpb_data.prices,
        "assortment": dpb_data.choices if columns else dpb_data.load_choices,
        "recommendation": dpb_data.ratings,
    }
    table: Any = source
    if not isinstance(source, (dpb_data.PriceTable, dpb_data.ChoiceTable, dpb_data.RatingTable)):
        try:
            inspect.signature(readers[problem]).bind(source, **columns)
        except TypeError as error:
            raise ParameterError(f"columns of a {problem} log: {error}") from None
        table = readers[problem](source, **columns)
    key = hashlib.sha256(f"{problem} {table.digest()} {settings}".encode()).hexdigest()[:8]
    label = "".join(part.capitalize() for part in re.findall("[a-zA-Z0-9]+", table.name))
    env_id = f"Log/{problem.capitalize()}-{label or 'Log'}-{key}-v0"
    if env_id not in ENVIRONMENTS:
        makers = {"pricing": pricing_problem, "assortment": assortment_problem}
        maker = makers.get(problem, replay_problem)
        maker(data=table, **settings)  # so that a log that cannot tell is refused now
        what = f"{problem.capitalize()} on the log {table.name!r}"
        # The callable, not its name: workers get the problem, for they do not know the id.
        reveals = RATINGS if problem == "recommendation" else _FITTED
        register_environment(
            env_id, maker, kind=problem, summary=what, reveals=reveals, data=table, **settings
        )
    return LogEnvironment(env_id)


@lru_cache(maxsize=8)
def pricing_problem(
    data: Any, horizon: int = 10_000, ridge: float = 1.0, bounds: Any = ()
) -> LoggedPricing:
    """Makes a `LoggedPricing`; fits of recently used settings are kept."""
    return LoggedPricing(data, horizon, ridge, dict(bounds))


@lru_cache(maxsize=8)
def assortment_problem(
    data: Any, horizon: int = 10_000, ridge: float = 1.0, bounds: Any = (), outside: Any = None,
    revenue: str | None = None, capacity: int | None = None,
) -> LoggedAssortment:  # fmt: skip
    """Makes a `LoggedAssortment`; fits of recently used settings are kept."""
    return LoggedAssortment(data, horizon, ridge, dict(bounds), outside, revenue, capacity)
