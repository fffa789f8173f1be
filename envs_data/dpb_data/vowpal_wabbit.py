"""Logs of Vowpal Wabbit's contextual bandits: ``--cb_explore_adf --dsjson``, one round per line.

The reader follows Vowpal Wabbit's own parser. `_labelIndex` is the position of the logged action
among ``c._multi``; the ranking ``a`` is ignored. The reward is minus `_label_cost`. Features of the
customer are all namespaces of ``c`` but ``_multi``, as objects or as lists of objects. A number is
a feature, true is 1, false is 0, and a feature that a line does not have is 0. Text is a category.

Two things differ, because a table has named columns. Vowpal Wabbit hashes names; the column of
feature ``x`` in namespace ``N`` is ``N_x``. What the table could not hold without a guess raises
`DataError` with its line, where Vowpal Wabbit goes on.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpb_data.questions import Answer, Question
from dpb_gym.errors import DataError, QuestionError, shown

ITEM = "item"
REWARD = "reward"
PROPENSITY = "propensity"
LABEL = ("_label_cost", "_labelIndex", "_label_probability")
OTHER_PROBLEMS = ("_outcomes", "_label_ca", "_slot", "_slots")
"""Keys of lines for several slots or continuous actions."""


def table(
    source: str | os.PathLike[str] | Iterable[str], item: str | None = None
) -> dict[str, list[Any]]:
    """Return the rounds of a log as columns, for `dpb_data.clicks`, `dpb_gym.advise` and others.

    Lines that Vowpal Wabbit does not learn from are left out: empty ones, those with `_skipLearn`,
    and those without a label, such as rewards that came late.

    Args:
        source: Path of a file, or its lines.
        item: The feature of an action that names the item, such as ``"Item_kind"``. None: items
            are positions, from 1. All lines must then have the same actions.

    Returns:
        ``"item"``, ``"reward"`` and ``"propensity"``, and one column per feature of the customer:
        numbers, or texts and None.

    Raises:
        DataError: If the file cannot be read, or a line is not understood, which is named.

    Example:
        >>> line = (
        ...     '{"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": 1, "a": [2, 1], '
        ...     '"c": {"User": {"age": 0.3}, "_multi": [{"i": {"id": "a"}}, {"i": {"id": "b"}}]}}'
        ... )
        >>> table([line])
        {'item': [2], 'reward': [1.0], 'propensity': [0.5], 'User_age': [0.3]}
    """
    columns: dict[str, list[Any]] = {ITEM: [], REWARD: [], PROPENSITY: []}
    contexts: list[dict[str, float | str]] = []
    first: list[Any] | None = None
    for where, record in _rounds(source):
        actions = record["c"]["_multi"]
        if item is None and first not in (None, actions):
            raise QuestionError(_item_question(where, actions[0]))
        first = actions
        columns[ITEM].append(_item(where, record, item))
        columns[REWARD].append(0.0 - record["_label_cost"])
        columns[PROPENSITY].append(record["_label_probability"])
        shared = {name: value for name, value in record["c"].items() if name != "_multi"}
        contexts.append(_features(where, shared))
    kinds = _kinds(contexts)
    for name, text in kinds.items():
        if name in columns:
            raise DataError(f"a feature of the customer is called {name!r}, as a column is")
        columns[name] = [context.get(name, None if text else 0.0) for context in contexts]
    return columns


def is_round(record: Mapping[str, Any]) -> bool:
    """Return whether an object is a line of such a log."""
    context = record.get("c")
    return any(key in record for key in LABEL) or (
        isinstance(context, dict) and "_multi" in context
    )


def is_log(path: Path) -> bool:
    """Return whether the first line of a file that is not empty is one of such a log."""
    try:
        with path.open(encoding="utf-8") as file:
            first = next((line for line in file if line.strip()), "")
        record = json.loads(first)
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and is_round(record)


def _item_question(where: str, action: Any) -> Question:
    features = [*_features(where, action)]
    if not features:
        raise DataError(f"{where}: its actions differ and have no features that name an item")
    return Question(
        "item",
        f"{where}: its actions differ from those of the first line, so that a position does not "
        "name an item. Which feature of an action names it?",
        tuple(Answer({"item": name}, "its values are the items") for name in features[:12]),
    )


def _rounds(source: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the record of each line with a label."""
    named = isinstance(source, (str, os.PathLike))
    name = Path(source).name if named else "lines"
    try:
        lines = Path(source).read_text("utf-8").splitlines() if named else source
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: cannot be read: {error}") from error
    number = 0
    for number, line in enumerate(lines, start=1):
        where = f"{name}: line {number}"
        if not line.strip():
            continue
        record = _record(where, line)
        if record is not None:
            yield where, record
    if number == 0:
        raise DataError(f"{name} has no line")


def _record(where: str, line: str) -> dict[str, Any] | None:
    """Return a line's record if it has a label that is learnt from.

    Raises:
        DataError: If it is no JSON, of another problem, or its label is damaged.
    """
    try:
        record = json.loads(line, parse_constant=_no_number)
    except ValueError as error:
        raise DataError(f"{where}: no JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected an object, got {shown(record)}")
    other = [key for key in OTHER_PROBLEMS if key in record]
    if other:
        raise DataError(f"{where}: {other[0]} belongs to several slots or continuous actions")
    if record.get("_skipLearn") or not any(key in record for key in LABEL):
        return None
    missing = [key for key in LABEL if key not in record]
    if missing:
        raise DataError(f"{where}: a label needs {', '.join(LABEL)}; {missing[0]} is missing")
    if record.get("pdrop"):
        raise DataError(
            f"{where}: pdrop says that lines were dropped at random, which no column can state"
        )
    _check_label(where, record)
    return record


def _check_label(where: str, record: dict[str, Any]) -> None:
    context = record.get("c")
    actions = context.get("_multi") if isinstance(context, dict) else None
    if not isinstance(actions, list) or not actions:
        raise DataError(f"{where}: c._multi must list the actions")
    index = record["_labelIndex"]
    if type(index) is not int or not 0 <= index < len(actions):
        raise DataError(
            f"{where}: _labelIndex must be the position of an action, 0..{len(actions) - 1}, got "
            f"{shown(index)}"
        )
    stated = record.get("_label_Action", index + 1)
    if stated != index + 1:
        raise DataError(f"{where}: _label_Action {shown(stated)} is not _labelIndex {index} + 1")
    if not _is_number(record["_label_cost"]):
        raise DataError(f"{where}: _label_cost must be a number")
    chance = record["_label_probability"]
    if not _is_number(chance) or not 0.0 < chance <= 1.0:
        raise DataError(f"{where}: _label_probability must lie in (0, 1], got {shown(chance)}")


def _item(where: str, record: dict[str, Any], item: str | None) -> Any:
    """Return the item of the logged action: its position from 1, or the value of a feature."""
    index = record["_labelIndex"]
    if item is None:
        return index + 1
    features = _features(where, record["c"]["_multi"][index])
    if item not in features:
        raise DataError(f"{where}: the action has no feature {item!r}; it has {_listed(features)}")
    return features[item]


def _features(where: str, namespaces: Any, prefix: str = "") -> dict[str, float | str]:
    """Return numbers and texts by column name of nested objects and lists.

    Raises:
        DataError: If a name occurs twice, or a value is neither number, text, truth value nor a
            list of numbers.
    """
    features: dict[str, float | str] = {}
    for name, value in _pairs(where, namespaces):
        column = f"{prefix}{name}"
        if name == "_text":
            raise DataError(f"{where}: {column} is free text, which no column can hold: remove it")
        if name.startswith("_"):
            continue  # tags and remarks, which Vowpal Wabbit does not read as features
        if value is None:
            inner: dict[str, float | str] = {}
        elif _is_number(value) or isinstance(value, bool):
            inner = {column: float(value)}
        elif isinstance(value, str):
            inner = {column: value}
        elif isinstance(value, list) and all(map(_is_number, value)):
            inner = {f"{column}_{k}": float(number) for k, number in enumerate(value)}
        elif isinstance(value, (dict, list)):
            inner = _features(where, value, f"{column}_")
        else:
            raise DataError(
                f"{where}: {column} must be a finite number or text, got {shown(value)}"
            )
        twice = [key for key in inner if key in features]
        if twice:
            raise DataError(f"{where}: feature {twice[0]} occurs twice")
        features |= inner
    return features


def _pairs(where: str, namespaces: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of an object, or of all objects of a list."""
    if isinstance(namespaces, Mapping):
        yield from namespaces.items()
    elif isinstance(namespaces, list) and all(isinstance(part, dict) for part in namespaces):
        for part in namespaces:
            yield from part.items()
    else:
        raise DataError(
            f"{where}: expected an object or a list of objects, got {shown(namespaces)}"
        )


def _kinds(contexts: list[dict[str, float | str]]) -> dict[str, bool]:
    """Return every feature, in order of appearance, and whether it is text."""
    kinds: dict[str, bool] = {}
    for context in contexts:
        for name, value in context.items():
            text = isinstance(value, str)
            if kinds.setdefault(name, text) != text:
                raise DataError(f"feature {name} is text in some lines and a number in others")
    return kinds


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _listed(features: dict[str, float | str]) -> str:
    return ", ".join(map(repr, features)) or "none"
