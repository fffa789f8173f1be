"""From a log to an environment in one call."""

from __future__ import annotations

import base64
import hashlib
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dpb_gym import report, validation
from dpb_gym.envs.catalogue import ENVIRONMENTS, RATINGS, make_problem, register_environment
from dpb_gym.envs.data import LOGGED, replay_problem
from dpb_gym.errors import ParameterError
from dpb_gym.problems.fitting import LISTENER, step
from dpb_gym.report.notebook import grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FITTED = (
    "contexts are customers of the log, person_uses counts their rows; bounds that were not "
    "declared are the log's; expected_reward, oracle_reward and regret in info follow from "
    "parameters that were fitted to it without noise"
)


class LogEnvironment(str):
    """The id of an environment that was made of a log; a notebook shows its `report`."""

    __slots__ = ()

    def summary(self) -> dict[str, Any]:
        """How the model was fitted and how well it knows customers that it has not seen."""
        return make_problem(self).summary()

    @property
    def report(self) -> str:
        """The summary as text, calibration as predicted and observed chances."""
        return "\n".join([str(self), *(f"  {key}: {text}" for key, text in self._told())])

    def _told(self) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        for key, value in self.summary().items():
            name = key.replace("_", " ")
            if key == "calibration":
                pairs = ", ".join(f"{predicted:.2f}: {seen:.2f}" for predicted, seen, _ in value)
                rows.append(("calibration (predicted: observed)", pairs))
            elif key == "notes":
                rows += [("note", note) for note in value]
            elif isinstance(value, Mapping):
                rows.append((name, ", ".join(f"{k} {_number(v)}" for k, v in value.items())))
            else:
                rows.append((name, _number(value)))
        return rows

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws predicted against observed chances of held-out customers, with 95% intervals.

        Args:
            path: File to write, as for `dpb_gym.report.plot`.

        Raises:
            ParameterError: If no model was fitted: replayed ratings answer for themselves.
        """
        figures = self.summary()
        if "calibration" not in figures:
            raise ParameterError(f"{self} replays ratings: there is no model to calibrate")
        return report.plot_calibration(figures["data"], figures["calibration"], path)

    def _repr_html_(self) -> str:
        table = grid(["", ""], self._told(), str(self))
        if "calibration" not in self.summary():
            return table
        drawn = base64.b64encode(self.plot()._repr_png_()).decode()  # type: ignore[attr-defined]
        return f"{table}<img alt='calibration' src='data:image/png;base64,{drawn}'>"


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_number, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Line:
    """Says on the standard error what is being done, once it takes longer than 2 seconds."""

    def __init__(self) -> None:
        self.start, self.what = time.monotonic(), "reading"
        self.done = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self, what: str) -> None:
        self.what = what
        if time.monotonic() - self.start > 2.0:
            self._show()

    def _watch(self) -> None:
        wait = 2.0
        while not self.done.wait(wait):
            self._show()
            wait = 10.0

    def _show(self) -> None:
        seconds = time.monotonic() - self.start
        print(f"from_log: {self.what} ({seconds:.0f} s so far)", file=sys.stderr, flush=True)


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
    progress: bool | Callable[[str], Any] | None = None,
    **columns: Any,
) -> LogEnvironment:
    """Makes an environment of a log: its customers arrive, a model fitted to it responds.

    The fit reads the log without noise: it protects nobody in it. What is studied in the
    environment is what privacy would cost from now on.

    Args:
        source: A frame (pandas, polars, pyarrow), a mapping of arrays, the path of a CSV or
            Parquet file, or a table that `dpb_data` has read.
        problem: ``"pricing"`` (`dpb_gym.problems.logged.LoggedPricing`), ``"assortment"``
            (`LoggedAssortment`) or ``"recommendation"``: a recommender's log if a column
            `propensity` is named (`dpb_gym.problems.logged.LoggedRecommendation`), else
            replay of ratings.
        horizon: Rounds T of the environment, by default.
        ridge: Penalty of the fit, positive.
        bounds: Public lowest and highest value of features, by name; for pricing also of
            ``"price"``. What is not declared is read off the log.
        outside: Assortment: the item that stands for buying nothing.
        revenue: Assortment: the attribute that an item earns.
        capacity: Assortment: items offered at most; half of them, at most 10, by default.
        progress: Whether to say on the standard error what is being done, or who is told; by
            default on a terminal, after two seconds.
        **columns: Names of the columns: see `dpb_data.prices`, `dpb_data.choices`,
            `dpb_data.clicks` and `dpb_data.ratings`.

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
    validation.choice("problem", problem, LOGGED)
    settings: dict[str, Any] = {"horizon": horizon}
    if problem != "recommendation" or "propensity" in columns or hasattr(source, "propensity"):
        settings |= {"ridge": ridge, "bounds": tuple(sorted((bounds or {}).items()))}
    elif bounds is not None:
        raise ParameterError("ratings have no bounds: declare rating_range=(lowest, highest)")
    if problem == "assortment":
        settings |= {"outside": outside, "revenue": revenue, "capacity": capacity}
    elif (outside, revenue, capacity) != (None, None, None):
        raise ParameterError("outside, revenue and capacity belong to problem='assortment'")
    show = sys.stderr.isatty() if progress is None else progress
    line = _Line() if show is True else None
    told = LISTENER.set(line or (show if callable(show) else None))
    try:
        table = _table(source, problem, columns)
        return LogEnvironment(_registered(problem, table, settings))
    finally:
        LISTENER.reset(told)
        if line is not None:
            line.done.set()


def _table(source: Any, problem: str, columns: dict[str, Any]) -> Any:
    import dpb_data

    step("reading")
    choices = dpb_data.choices if columns else dpb_data.load_choices
    rated = dpb_data.clicks if "propensity" in columns else dpb_data.ratings
    table, reader = {
        "pricing": (dpb_data.PriceTable, dpb_data.prices),
        "assortment": (dpb_data.ChoiceTable, choices),
        "recommendation": ((dpb_data.RatingTable, dpb_data.ClickTable), rated),
    }[problem]
    if isinstance(source, table):  # type: ignore[arg-type]
        return source
    try:
        inspect.signature(reader).bind(source, **columns)
    except TypeError as error:
        raise ParameterError(f"columns of a {problem} log: {error}") from None
    return reader(source, **columns)


def _registered(problem: str, table: Any, settings: dict[str, Any]) -> str:
    key = hashlib.sha256(f"{problem} {table.digest()} {settings}".encode()).hexdigest()[:8]
    label = "".join(part.capitalize() for part in re.findall("[a-zA-Z0-9]+", table.name))
    env_id = f"Log/{problem.capitalize()}-{label or 'Log'}-{key}-v0"
    if env_id not in ENVIRONMENTS:
        replayed = hasattr(table, "ratings")
        # The callable, not its name: workers get the problem, for they do not know the id.
        maker = replay_problem if replayed else LOGGED[problem]
        maker(data=table, **settings)  # so that a log that cannot tell is refused now
        register_environment(
            env_id,
            maker,
            kind=problem,
            summary=f"{problem.capitalize()} on the log {table.name!r}",
            reveals=RATINGS if replayed else _FITTED,
            data=table,
            **settings,
        )
    return env_id
