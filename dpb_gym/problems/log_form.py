"""What `from_log`, `advise` and `cost_of_privacy` need to know of a kind of problems."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.problems.rounds import Array

COMMON = ("ridge", "bounds", "log_scale")
"""Arguments of the fit of every kind of log."""
MOST_OPTIONS = 200
"""Actions that advice compares as the only one for all customers, at most."""
FEW_OPTIONS = 40
"""The same by default, where each is evaluated by the problem's own response."""


class LogForm(ABC):
    """Logs of a kind: their columns, the problem that is fitted to them, and words for advice.

    Attributes:
        settings: Arguments of the fit besides those of every kind, such as ``"capacity"``.
        agents: Names of the agents that advice compares.
        recommended: Names of the recommended agent and of its rivals, for the cost of privacy.
        act: Verb of the decision to play one action for every customer.
        earned: What customers bring, for percentages.
        collect: What further customers must have, after "Collect more customers".
        rounds_alone: Agent rounds (rounds times replicates times agents) up to which advice plays
            in one process by default: others would take longer to start than to play.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    agents: ClassVar[tuple[str, ...]] = ()
    recommended: ClassVar[tuple[str, ...]] = ()
    act: ClassVar[str] = "Play"
    earned: ClassVar[str] = "revenue"
    collect: ClassVar[str] = ""
    rounds_alone: ClassVar[int] = 0

    @abstractmethod
    def read(self, source: Any, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Return the table of a source, by columns that are named.

        The table has ``name``, ``digest()``, ``len()`` and may have ``notes`` on repairs.

        Args:
            source: See `dpb_gym.from_log`.
            columns: Arguments of the reader: columns by role.
            settings: Values of `settings`.
        """

    @abstractmethod
    def problem(self, table: Any) -> Callable[..., Any]:
        """Return the factory of the problem of a table: ``factory(data=table, horizon=..., ...)``.

        Advice needs a subclass of `dpb_gym.problems.logged.Logged`.
        """

    def takes(self, source: Any) -> bool:
        """Return whether a source is a table of this form, which need not be read."""
        return hasattr(source, "digest")

    def reading(self, kind: str, source: Any, given: Mapping[str, Any]) -> Any:
        """Return what a table is read as: a `dpb_data.Reading`, which may have open questions.

        Args:
            kind: Name of the kind.
            source: See `dpb_gym.advise`.
            given: Columns by role and settings.
        """
        import dpb_data

        settings = {key: value for key, value in given.items() if key in (*COMMON, *self.settings)}
        columns = {key: value for key, value in given.items() if key not in settings}
        table = source if self.takes(source) else self.read(source, columns, settings)
        return dpb_data.Reading(
            table.name, kind, "a table with named columns", columns=columns, settings=settings,
            repairs=getattr(table, "notes", ()), _asked=(source, kind, given), _load=lambda: table,
        )  # fmt: skip

    def fits(self, source: Any, columns: Mapping[str, Any]) -> bool:
        """Return whether a model is fitted, so that ridge and bounds apply."""
        return True

    def releases(self, table: Any) -> bool:
        """Return whether the model can be released privately, by ``private=``."""
        return False

    def data_digest(self, source: Any, parameters: Mapping[str, Any]) -> str:
        """Return the digest of named data, the parameter ``data`` of an environment."""
        raise ParameterError(f"data={source!r}: give a table instead of a name")

    def unit(self, problem: Any, currency: str | None, reading: Any) -> tuple[str, float]:
        """Return the unit of earnings and the earnings of a reward of 1.

        Args:
            problem: The problem of the log.
            currency: The unit that the caller named, or None.
            reading: The `dpb_data.Reading`, or None.
        """
        return currency or "units of reward", 1.0

    def options(self, problem: Any) -> Array:
        """Return the actions ``(A, ...)`` of which one may suit all customers.

        By default those that are best for some customers under the fitted model.
        """
        best: Array = problem.rounds_under(problem.theta).best[0]
        return best[:: -(-len(best) // FEW_OPTIONS)]

    def compared(self, problem: Any) -> int:
        """Return among how many actions of their own the best one is chosen, for its interval."""
        return len(getattr(problem, "item_ids", ())) or 1

    @abstractmethod
    def label(self, problem: Any, action: Array, currency: str | None) -> str:
        """Return an action for all customers in words, such as ``"always 5.29 EUR"``."""

    def doubts(self, problem: Any, data: Any) -> list[str]:
        """Return doubts about the log beside those about the fit, each a sentence."""
        return []


def read_columns(
    reader: Callable[..., Any], kind: str, source: Any, columns: Mapping[str, Any]
) -> Any:
    """Return the table that a reader makes of a source and the names of columns.

    Raises:
        ParameterError: If the reader takes no such columns, or needs others.
    """
    try:
        inspect.signature(reader).bind(source, **columns)
    except TypeError as error:
        raise ParameterError(f"columns of a {kind} log: {error}") from None
    return reader(source, **columns)


def frequent_rows(rows: Array, most: int) -> Array:
    """Return the most frequent rows, at most `most`; of equally frequent ones the smallest."""
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    return np.asarray(distinct[np.argsort(-counts, kind="stable")[:most]])
