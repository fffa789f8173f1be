"""SQL over the shards of a result directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.evaluation.shards import read_shard
from dpb_gym.evaluation.store import Store


def query(
    path: str | os.PathLike[str], sql: str, parameters: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """Runs DuckDB SQL over the results of a directory.

    Args:
        path: A result directory.
        sql: One SELECT. The view ``shards`` has the columns task, agent, budget,
            replicate, seed, round, regret and reward: cumulative regret and reward at each
            recorded round, every replicate once.
        parameters: Values for ``?`` in `sql`.

    Returns:
        One dict per row.

    Raises:
        ResultError: If the directory holds no results or the SQL is refused.

    Example:
        ``query("out", "SELECT agent, avg(regret) AS regret FROM shards WHERE round = 1000
        GROUP BY agent")``
    """
    import duckdb

    store = Store.open(path)
    parts = list(_parts(store))
    if not parts:
        raise ResultError(f"{store.path} holds no results yet")
    with duckdb.connect() as connection:
        try:
            connection.execute(f"CREATE TEMP VIEW shards AS {' UNION ALL '.join(parts)}")
            cursor = connection.execute(sql, list(parameters))
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            first = str(error).strip().split("\n")[0]
            raise ResultError(f"the query failed: {first}") from error


def _parts(store: Store) -> Iterator[str]:
    """SELECTs that together take every replicate of every row once."""
    seen: dict[tuple[str, str, str], set[int]] = {}
    cells = [(path, read_shard(path).cell) for path in store.shard_files()]
    whole = []
    for path, cell in sorted(cells, key=lambda item: -len(item[1].replicates)):
        taken = seen.setdefault((cell.task, cell.agent, cell.budget), set())
        new = [i for i in cell.replicates if i not in taken]
        taken.update(new)
        if len(new) == len(cell.replicates):
            whole.append(path)
        elif new:
            chosen = ", ".join(map(str, new))
            yield f"SELECT * FROM read_parquet({_quote(path)}) WHERE replicate IN ({chosen})"
    if whole:
        yield f"SELECT * FROM read_parquet([{', '.join(map(_quote, whole))}])"


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
