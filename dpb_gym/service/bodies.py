"""Bodies of requests: checked values, or errors that name the row and the field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError, did_you_mean, shown
from dpb_gym.privacy.account import LONGEST_ID
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.kinds import kind_of

MOST_ROWS = 1000
MOST = float(np.finfo(np.float32).max)
NUMBERS = (int, float)
OBSERVED = {"decision": True, "response": True}


class FieldError(NamedTuple):
    """What is wrong with a body.

    Attributes:
        row: Number of the row in the body from 0; None: the body itself.
        field: Path of the field, such as ``"features.age"``; None: the row itself.
        message: What was given and what is allowed.
    """

    row: int | None
    field: str | None
    message: str


class BodyError(ParameterError):
    """A body is wrong, and nothing was done with it.

    Attributes:
        errors: What is wrong, one row and field each.
    """

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"row {e.row}, {e.field}: {e.message}" for e in errors[:5]))
        self.errors = errors


class Bodies:
    """Reads requests of one problem, and names actions in answers.

    Args:
        info: The problem.
        actions: Names of candidates or items; None: they are numbers from 0.
        features: Ranges of the features by name; None: rows have arrays, see `Session.decide`.
        people: Whether customers are named, as the session has an account.

    Attributes:
        info: The problem.
        actions: See above.
        features: See above.
        people: See above.
        fields: Fields of a row of ``/decide``; the value tells whether it is required.
    """

    def __init__(
        self,
        info: ProblemInfo,
        actions: tuple[str, ...] | None,
        features: dict[str, tuple[float, float]] | None,
        people: bool,
    ) -> None:
        self.info = info
        self.actions = actions
        self.features = features
        self.people = people
        self._kind = kind_of(info.kind)
        self._number = {name: n for n, name in enumerate(actions or ())}
        self.fields: dict[str, bool] = {"features": True}
        if people or info.max_interactions is not None:
            self.fields["user"] = True
        if info.masked:
            self.fields["excluded"] = False
        if self._kind.revenues:
            self.fields["revenues"] = not info.equal_revenues
        if info.n_arms is not None and info.n_candidates is not None:
            self.fields["arms"] = True
        self._norm = 1.0 / math.sqrt(1 + len(features or ()))
        if features is not None:
            self._limits = {
                name: (low, high, 1.0 / (high - low)) for name, (low, high) in features.items()
            }

    @property
    def n_actions(self) -> int:
        """Number of candidates or items, 0 for prices."""
        return self.info.n_candidates or self.info.n_items or 0

    def decide(self, body: Any) -> list[dict[str, Any]]:
        """Return the arguments of `Session.decide` for each row of a body of ``/decide``.

        Raises:
            BodyError: If a row is wrong.
        """
        return self._each(body, self.arguments)

    def observe(self, body: Any) -> list[tuple[int, Any]]:
        """Return decision and response of each row of a body of ``/observe``.

        Raises:
            BodyError: If a row is wrong, or two rows have the same decision.
        """
        rows = self._each(body, self._observed)
        if len(rows) == 1:
            return rows
        decisions = [decision for decision, _ in rows]
        if len(set(decisions)) < len(rows):
            errors = [
                FieldError(n, "decision", f"decision {decision} appears twice in this body")
                for n, decision in enumerate(decisions)
                if decision in decisions[:n]
            ]
            raise BodyError(errors)
        return rows

    def _observed(self, row: Mapping[str, Any]) -> tuple[int, Any]:
        _known(row, OBSERVED)
        decision = row["decision"]
        if type(decision) is not int or not 1 <= decision <= validation.LARGEST:
            raise _Wrong("decision", f"must be a decision's number, got {shown(decision)}")
        return decision, self.response(row["response"])

    def _each(self, body: Any, read: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
        """Read every row, and collect what is wrong."""
        rows = body if isinstance(body, list) else [body]
        if not 1 <= len(rows) <= MOST_ROWS:
            raise BodyError(
                [FieldError(None, None, f"a body has 1 to {MOST_ROWS} rows, got {len(rows)}")]
            )
        parsed = []
        errors = []
        for number, row in enumerate(rows):
            try:
                if not isinstance(row, dict):
                    raise _Wrong(None, f"a row is a JSON object, got {shown(row)}")
                parsed.append(read(row))
            except _Wrong as error:
                errors.append(FieldError(number, error.field, str(error)))
        if errors:
            raise BodyError(errors)
        return parsed

    def arguments(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `Session.decide` for a row of ``/decide``."""
        _known(row, self.fields)
        arguments: dict[str, Any] = {"features": self._features(row["features"])}
        if "user" in row:
            arguments["user"] = self._user(row["user"])
        if "excluded" in row:
            arguments["available"] = self._available(row["excluded"])
        if "revenues" in row:
            with _Field("revenues"):
                size = (self.info.n_items,)
                arguments["revenues"] = validation.array(
                    "revenues", _array(row["revenues"]), size, *self.info.reward_range
                )
        if "arms" in row:
            arguments["arms"] = self._arms(row["arms"])
        return arguments

    def _features(self, given: Any) -> Array:
        if self.features is None:
            with _Field("features"):
                shape = self._kind.feature_shape(self.info)
                return validation.array("features", _array(given), shape, -MOST, MOST)
        if not isinstance(given, dict):
            raise _Wrong("features", f"must be an object of named values, got {shown(given)}")
        own = [1.0]
        for name, (low, high, factor) in self._limits.items():
            value: Any = given.get(name)
            # bool is a subclass of int, so types are compared; NaN fails every comparison
            if type(value) not in NUMBERS or not low <= value <= high:
                if name not in given:
                    raise _Wrong(f"features.{name}", "is missing")
                raise _Wrong(
                    f"features.{name}",
                    f"must be a number from {low:g} to {high:g}, got {shown(value)}",
                )
            own.append((value - low) * factor)
        if len(given) > len(self._limits):
            name = next(name for name in given if name not in self._limits)
            close = did_you_mean(name, self._limits)
            raise _Wrong(
                "features",
                f"unknown feature {shown(name)}; {close or 'known: ' + ', '.join(self._limits)}",
            )
        return self._kind.named_features(self.info, np.array(own) * self._norm)

    def _user(self, given: Any) -> int | str:
        if not self.people:
            with _Field("user"):
                return validation.integer("user", given, 0)
        # An account takes texts and numbers for the same people, a session one of the two.
        with _Field("user"):
            if isinstance(given, str):
                text = validation.text("user", given)
                if len(text) > LONGEST_ID:
                    raise ParameterError(
                        f"user must have at most {LONGEST_ID} characters, got {shown(given)}"
                    )
                return text
            if isinstance(given, int) and not isinstance(given, bool):
                return str(validation.integer("user", given, 0))
            raise ParameterError(f"user must be a text or an integer >= 0, got {shown(given)}")

    def _available(self, given: Any) -> Array:
        count = self.n_actions
        if not isinstance(given, list):
            raise _Wrong("excluded", f"must be a list of actions, got {shown(given)}")
        mask = np.ones(count)
        for place, name in enumerate(given):
            index = self._index(f"excluded.{place}", name)
            if mask[index] == 0.0:
                raise _Wrong(f"excluded.{place}", f"action {shown(name)} appears twice")
            mask[index] = 0.0
        if not mask.any():
            raise _Wrong("excluded", "all actions are excluded; leave at least one")
        return mask

    def _index(self, field: str, given: Any) -> int:
        """Return the number of an action."""
        if self.actions is None:
            with _Field(field):
                return validation.integer("an action", given, 0, self.n_actions - 1)
        number = self._number.get(given) if isinstance(given, str) else None
        if number is None:
            close = did_you_mean(given, self.actions)
            hint = close or f"known: {', '.join(self.actions[:12])}"
            raise _Wrong(field, f"unknown action {shown(given)}; {hint}")
        return number

    def _arms(self, given: Any) -> Array:
        info = self.info
        with _Field("arms"):
            shape = (info.n_candidates,)
            arms = validation.array("arms", _array(given), shape, 0, (info.n_arms or 1) - 1)
            if (arms % 1.0).any() or len(set(arms.tolist())) < len(arms):
                raise ParameterError(f"arms must be different integers, got {shown(given)}")
            return arms

    def response(self, given: Any) -> Any:
        """Return a response in the form of `Session.observe`."""
        if self._kind.response == "choice":
            return None if given is None else self._index("response", given)
        if self._kind.response in (None, "demand"):
            if given is None or isinstance(given, (list, dict, str)):
                raise _Wrong("response", f"must be a number, got {shown(given)}")
            return given
        if not isinstance(given, list) or len(given) != 2:
            raise _Wrong("response", f"must be [reward, answer], got {shown(given)}")
        return tuple(given)

    def answer(self, action: Any) -> Any:
        """Return what `Session.decide` returned as JSON, with names for numbers."""
        if isinstance(action, np.ndarray):
            return action.tolist()
        if self.actions is None:
            return action
        if isinstance(action, list):
            return [self.actions[item] for item in action]
        return self.actions[action]

    def excludes(self, arguments: Mapping[str, Any], answer: Any) -> bool:
        """Return whether an answer has an action that the request excludes."""
        mask = arguments.get("available")
        if mask is None:
            return False
        chosen = answer if isinstance(answer, list) else [answer]
        return not all(mask[self._number.get(each, each)] for each in chosen)


class _Wrong(Exception):
    """A field of a row is wrong."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


class _Field:
    """Turns a ParameterError in its block into an error of a field."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ParameterError):
            raise _Wrong(self._name, str(error)) from None


def _known(row: Mapping[str, Any], fields: Mapping[str, bool]) -> None:
    """Raise an error if a field is unknown or missing."""
    if row.keys() != fields.keys():
        for name in row:
            if name not in fields:
                close = did_you_mean(name, fields)
                raise _Wrong(name, f"unknown field; {close or 'known: ' + ', '.join(fields)}")
        for name, required in fields.items():
            if required and name not in row:
                raise _Wrong(name, "is missing")


def _array(given: Any) -> Any:
    """Return a list of numbers, or of lists of them.

    Raises:
        ParameterError: If something else is in it, such as a text or true.
    """
    if not isinstance(given, list):
        raise ParameterError(f"must be a list of numbers, got {shown(given)}")
    for each in given:
        for number in each if isinstance(each, list) else (each,):
            if type(number) not in NUMBERS:
                raise ParameterError(f"must have numbers only, got {shown(number)}")
    return given
