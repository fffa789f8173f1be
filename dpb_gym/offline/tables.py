"""Logs as tables: data frames and CSV files."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import DataError, ParameterError
from dpb_gym.offline.log import LoggedData
from dpb_gym.problems.base import Array

REQUIRED = ("action", "propensity", "reward")
_FEATURE = re.compile(r"x_(\d+)_(\d+)")
_PER_CANDIDATE = re.compile(r"(arm|expected)_(\d+)")


def names_of(m: int, d: int, arms: bool, users: bool, expected: bool) -> list[str]:
    """The columns of a log, in the order in which `write_csv` writes them."""
    names = [*REQUIRED, *(["user"] if users else [])]
    names += [f"arm_{k}" for k in range(m)] if arms else []
    names += [f"expected_{k}" for k in range(m)] if expected else []
    return names + [f"x_{k}_{j}" for k in range(m) for j in range(d)]


def _layout(found: Iterable[str], where: str) -> tuple[int, int, list[str]]:
    """Numbers of candidates and features, and the complete list of columns."""
    names = list(found)
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise DataError(f"{where}: column {sorted(doubled)[0]!r} occurs twice")
    pairs = [tuple(map(int, match.groups())) for n in names if (match := _FEATURE.fullmatch(n))]
    if not pairs:
        raise DataError(f"{where}: expected feature columns x_0_0, x_0_1, ..., found none")
    m, d = (1 + max(pair[axis] for pair in pairs) for axis in (0, 1))
    if m * d != len(pairs):
        raise DataError(
            f"{where}: expected {m} x {d} feature columns x_0_0 to x_{m - 1}_{d - 1}, "
            f"found {len(pairs)}"
        )
    extras = {match.group(1) for n in names if (match := _PER_CANDIDATE.fullmatch(n))}
    wanted = names_of(m, d, "arm" in extras, "user" in names, "expected" in extras)
    missing = [n for n in wanted if n not in names]
    unknown = [n for n in names if n not in wanted]
    if missing:
        raise DataError(f"{where}: expected a column {missing[0]!r}, found {_some(names)}")
    if unknown:
        raise DataError(f"{where}: unknown column {unknown[0]!r}; known are {_some(wanted)}")
    return m, d, wanted


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _column_names(frame: Any) -> list[str]:
    if isinstance(frame, Mapping):
        return [str(key) for key in frame]
    for attribute in ("column_names", "columns"):
        names = getattr(frame, attribute, None)
        if names is not None and not callable(names):
            return [str(name) for name in names]
    raise DataError(
        "a log is made of named columns (dict, pandas, Polars, pyarrow), "
        f"got {type(frame).__name__}"
    )


def from_columns(frame: Any, reward_range: tuple[float, float], name: str) -> LoggedData:
    """See `LoggedData.from_columns`."""
    m, d, wanted = _layout(_column_names(frame), name)
    columns = {}
    for key in wanted:
        try:
            columns[key] = np.asarray(frame[key], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: column {key!r} holds no numbers: {error}") from None
    lengths = {key: column.shape for key, column in columns.items()}
    first = lengths["action"]
    for key, shape in lengths.items():
        if len(shape) != 1 or shape != first:
            raise DataError(f"{name}: column {key!r} has shape {shape}, 'action' has {first}")
    return _assemble(columns, m, d, reward_range, name)


def _assemble(
    columns: Mapping[str, Array], m: int, d: int, reward_range: tuple[float, float], name: str
) -> LoggedData:
    def stacked(prefix: str) -> Array | None:
        if f"{prefix}_0" not in columns:
            return None
        return np.stack([columns[f"{prefix}_{k}"] for k in range(m)], axis=1)

    features = np.stack(
        [np.stack([columns[f"x_{k}_{j}"] for j in range(d)], axis=1) for k in range(m)], axis=1
    )
    return LoggedData.from_arrays(
        features,
        columns["action"],
        columns["propensity"],
        columns["reward"],
        reward_range,
        arms=stacked("arm"),
        users=columns.get("user"),
        expected=stacked("expected"),
        name=name,
    )


def read_csv(path: str | os.PathLike[str], reward_range: tuple[float, float]) -> LoggedData:
    """See `LoggedData.read_csv`."""
    place = Path(path)
    try:
        with open(place, newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, strict=True)
            header = next(reader, [])
            m, d, wanted = _layout(header, f"{place}: line 1")
            rows = np.array(list(_numbers(reader, header, place)), dtype=np.float64)
    except OSError as error:
        raise DataError(f"{place}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{place}: expected CSV in UTF-8: {error}") from None
    if len(rows) < 2:
        raise DataError(f"{place}: expected at least 2 rounds, found {len(rows)}")
    columns = {key: rows[:, header.index(key)] for key in wanted}
    try:
        return _assemble(columns, m, d, reward_range, place.stem)
    except ParameterError as error:
        # Round i of the log is line i + 2 of the file.
        text = re.sub(r"in round (\d+)", lambda s: f"in line {int(s[1]) + 2}", str(error))
        raise DataError(f"{place}: {text}") from None


def _numbers(reader: Iterator[list[str]], header: list[str], place: Path) -> Iterator[list[float]]:
    for line, row in enumerate(reader, start=2):
        if len(row) != len(header):
            raise DataError(
                f"{place}: line {line}: expected {len(header)} fields, found {len(row)}"
            )
        try:
            yield [float(cell) for cell in row]
        except ValueError:
            key, cell = next((k, c) for k, c in zip(header, row) if not _is_number(c))
            raise DataError(
                f"{place}: line {line}: expected a number as {key}, found {cell!r}"
            ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def write_csv(log: LoggedData, path: str | os.PathLike[str]) -> None:
    """See `LoggedData.write_csv`."""
    n, m, d = log.features.shape
    names = names_of(m, d, log.arms is not None, log.users is not None, log.expected is not None)
    parts: list[list[list[Any]]] = [
        [[a, p, r] for a, p, r in zip(log.actions, log.propensities, log.rewards)]
    ]
    if log.users is not None:
        parts.append([[user] for user in log.users])
    parts += [list(table) for table in (log.arms, log.expected) if table is not None]
    parts.append(list(log.features.reshape(n, m * d)))
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for pieces in zip(*parts):
            writer.writerow([str(value) for piece in pieces for value in piece])
