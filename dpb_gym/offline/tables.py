"""Logs as tables: data frames and CSV files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.errors import DataError, ParameterError

if TYPE_CHECKING:
    from dpb_gym.offline.log import LoggedData

REQUIRED = ("action", "reward")
PER_CANDIDATE = ("arm", "expected", "behaviour")
_FEATURE = re.compile(r"x_(\d+)_(\d+)")
_EXTRA = re.compile(rf"({'|'.join(PER_CANDIDATE)})_\d+")


def _layout(names: list[str], where: str) -> tuple[int, int]:
    """Numbers of candidates and features; checks that the columns are complete."""
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(f"{where}: column {doubled[0]!r} occurs twice")
    pairs = [tuple(map(int, match.groups())) for n in names if (match := _FEATURE.fullmatch(n))]
    if not pairs:
        raise DataError(f"{where}: expected feature columns x_0_0, x_0_1, ..., found none")
    m, d = (1 + max(pair[axis] for pair in pairs) for axis in (0, 1))
    if m * d != len(pairs):
        raise DataError(
            f"{where}: expected {m} x {d} feature columns x_0_0 to x_{m - 1}_{d - 1}, "
            f"found {len(pairs)}"
        )
    extras = {match.group(1) for n in names if (match := _EXTRA.fullmatch(n))}
    wanted = [*REQUIRED, *(f"{kind}_{k}" for kind in extras for k in range(m))]
    known = sorted({*wanted, "propensity", "user"})
    for missing in (name for name in wanted if name not in names):
        raise DataError(f"{where}: expected a column {missing!r}, found {', '.join(names[:6])}")
    for unknown in (n for n in names if n not in known and not _FEATURE.fullmatch(n)):
        raise DataError(f"{where}: unknown column {unknown!r}; known are {', '.join(known)}")
    return m, d


def from_columns(
    made: type[LoggedData],
    source: Any,
    reward_range: tuple[float, float],
    name: str | None,
    **options: Any,
) -> LoggedData:
    """See `LoggedData.from_columns`."""
    from dpb_data.reading import Column, open_table

    opened = open_table(source)
    lines = isinstance(source, (str, os.PathLike))
    m, d = _layout(opened.columns, f"{opened.where}: line 1" if lines else opened.where)
    columns = opened.take([Column(key) for key in opened.columns])
    n = len(columns["action"])
    if n < 2:
        raise DataError(f"{opened.where}: expected at least 2 rounds, found {n}")
    features = np.empty((n, m, d), np.float32)
    for k in range(m):
        for j in range(d):
            features[:, k, j] = columns[f"x_{k}_{j}"]
    extras = {
        kind: np.stack([columns[f"{kind}_{k}"] for k in range(m)], axis=1)
        if f"{kind}_0" in columns
        else None
        for kind in PER_CANDIDATE
    }
    try:
        return made.from_arrays(
            features,
            columns["action"],
            columns.get("propensity"),
            columns["reward"],
            reward_range,
            arms=extras["arm"],
            expected=extras["expected"],
            behaviour=extras["behaviour"],
            users=columns.get("user"),
            name=name or opened.name,
            **options,
        )
    except ParameterError as error:
        if not lines:
            raise
        # Round i of the log is line i + 2 of the file.
        text = re.sub(r"in round (\d+)", lambda s: f"in line {int(s[1]) + 2}", str(error))
        raise DataError(f"{opened.where}: {text}") from None


def write_csv(log: LoggedData, path: str | os.PathLike[str]) -> None:
    """See `LoggedData.write_csv`."""
    import pyarrow as pa
    from pyarrow import csv

    _, m, d = log.features.shape
    columns = {"action": log.actions, "reward": log.rewards}
    columns |= {} if log.estimated else {"propensity": log.propensities}
    columns |= {} if log.users is None else {"user": log.users}
    known = None if log.estimated else log.behaviour
    for kind, table in zip(PER_CANDIDATE, (log.arms, log.expected, known)):
        if table is not None:
            columns |= {f"{kind}_{k}": table[:, k] for k in range(m)}
    columns |= {f"x_{k}_{j}": log.features[:, k, j] for k in range(m) for j in range(d)}
    arrays = {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
    csv.write_csv(pa.table(arrays), path)
