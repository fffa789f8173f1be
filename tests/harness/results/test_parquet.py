"""Tables: the same bytes for the same cells, and damage never goes unnoticed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpb_gym.errors import ParameterError, ResultError
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.parquet import (
    COLUMNS,
    DamagedResult,
    cell_file,
    from_rows,
    read_cell,
    read_table,
    table_bytes,
    to_rows,
    write_cell,
)
from dpb_gym.results.storage import storage_of
from dpb_gym.suites.schema import canonical, plain
from dpb_gym.suites.spec import AgentRun, Cell, Task

ROUNDS = [1, 5, 20]


def cell(*, agent: dict[str, Any] | None = None, horizon: int = 20, **changes: Any) -> Cell:
    run = AgentRun(
        **{"label": "Über/agent", "name": "random", "entry_point": "m:C", "source": "s",
           "budget": "rho=0.5", **(agent or {})}
    )  # fmt: skip
    fields: dict[str, Any] = {
        "algorithm": 1,
        "suite": "s-v0",
        "protocol": "abc",
        "task": Task(name="t", env="DPB/Pricing-v0", horizon=horizon),
        "agent": run,
        "checkpoints": tuple(ROUNDS),
        "seed": 7,
        "start": 2,
        "stop": 6,
    }
    return Cell(**{**fields, **changes})


def result(seed: int = 0, **changes: Any) -> CellResult:
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.random((2, 4, len(ROUNDS))), axis=2)
    guarantee = {"notion": "joint", "unit": "user-round", "relation": "replace-one", "curve": None}
    return CellResult(cell(**changes), values[0], values[1], guarantee)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / cell_file(cell())
    path.parent.mkdir()
    path.write_bytes(write_cell(result()))
    return path


def test_everything_comes_back(shard: Path) -> None:
    back, original = read_cell(shard.read_bytes(), str(shard)), result()
    np.testing.assert_array_equal(back.regret, original.regret)
    np.testing.assert_array_equal(back.reward, original.reward)
    assert back.guarantee == original.guarantee
    assert back.cell == original.cell and back.digest == original.digest


def test_the_columns_are_plain_parquet(shard: Path) -> None:
    rows = pq.ParquetFile(shard).read().to_pylist()
    assert tuple(rows[0]) == COLUMNS
    first = rows[0]
    assert (first["task"], first["agent"], first["budget"]) == ("t", "Über/agent", "rho=0.5")
    assert [(r["replicate"], r["seed"]) for r in rows] == [(2, 9), (3, 10), (4, 11), (5, 12)]
    assert first["rounds"] == ROUNDS and first["cell"] == cell().key
    assert rows[-1]["regret"] == result().regret[-1].tolist()
    assert rows[-1]["final_regret"] == result().regret[-1, -1]


def test_the_same_cell_gives_the_same_bytes() -> None:
    assert write_cell(result()) == write_cell(result())
    assert write_cell(result()) != write_cell(result(1))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed_or_harmless(
    shard: Path, tmp_path: Path, position: float, flip: int
) -> None:
    content = bytearray(shard.read_bytes())
    content[int(position * len(content))] ^= flip
    copy = tmp_path / "copy" / shard.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(bytes(content))
    try:
        back = read_cell(copy.read_bytes(), str(copy))
    except DamagedResult:
        return
    assert back.digest == result().digest


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncation_is_noticed(shard: Path, tmp_path: Path, share: float) -> None:
    content = shard.read_bytes()
    copy = tmp_path / "copy" / shard.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedResult, match=r"not a readable table|rows are damaged"):
        read_cell(copy.read_bytes(), str(copy))


def rewritten(shard: Path, change: Any) -> None:
    """Rewrites a shard as valid Parquet with other content and the old metadata."""
    file = pq.ParquetFile(shard)
    table, metadata = change(file.read(), dict(file.metadata.metadata or {}))
    with pq.ParquetWriter(shard, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)


def _set(name: str, row: int, value: Any) -> Any:
    def change(table: Any, metadata: Any) -> Any:
        rows = table.to_pylist()
        rows[row][name] = value(rows[row][name]) if callable(value) else value
        return type(table).from_pylist(rows, schema=table.schema), metadata

    return change


def _shifted(table: Any, metadata: Any) -> Any:
    """Moves the last value of the first replicate's curve to the second replicate."""
    rows = table.to_pylist()
    rows[1]["regret"].insert(0, rows[0]["regret"].pop())
    return type(table).from_pylist(rows, schema=table.schema), metadata


@pytest.mark.parametrize(
    "change",
    [
        _shifted,
        *(_set(name, 1, None) for name in COLUMNS),
        _set("regret", 3, lambda curve: [*curve[:-1], 99.0]),
        _set("reward", 0, lambda curve: [0.0, *curve[1:]]),
        _set("final_regret", 0, 0.0),
        _set("final_reward", 3, 99.0),
        _set("rounds", 1, [1, 6, 20]),
        _set("cell", 1, "0" * 64),
        _set("replicate", 2, 0),
        _set("seed", 3, 1),
        _set("agent", 1, "other"),
        _set("task", 0, "other"),
        _set("budget", 0, "none"),
        lambda t, m: (t.slice(0, 3), m),
        lambda t, m: (t.drop_columns(["reward"]), m),
        lambda t, m: (t.rename_columns([*COLUMNS[:-1], "rewards"]), m),
        lambda t, m: (t, {}),
        *(lambda t, m, bad=bad: (t, {**m, b"dpb": bad}) for bad in (b"{", b"{}", b"[]", b"[3]")),
        lambda t, m: (t, {**m, b"dpb": m[b"dpb"].replace(b'"joint"', b'"central"')}),
        lambda t, m: (t, {**m, b"dpb": m[b"dpb"].replace(b'"rho=0.5"', b'"rho=0.1"')}),
        lambda t, m: (t, {**m, b"dpb": m[b"dpb"].replace(b'"sha256"', b'"sha"')}),
    ],
)
def test_valid_parquet_with_other_content_is_damage(shard: Path, change: Any) -> None:
    rewritten(shard, change)
    with pytest.raises(DamagedResult) as caught:
        read_cell(shard.read_bytes(), str(shard))
    assert shard.name in str(caught.value)


def test_a_renamed_shard_is_damage(shard: Path) -> None:
    other = shard.with_name(Path(cell_file(cell(seed=8))).name)
    shutil.copy(shard, other)
    with pytest.raises(DamagedResult, match="renamed or copied"):
        read_cell(other.read_bytes(), str(other))


def test_other_files_are_damage_and_missing_ones_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(FileNotFoundError):
        storage_of(tmp_path).read(path.name, 1 << 20)
    path.write_bytes(b"")
    with pytest.raises(DamagedResult):
        read_cell(path.read_bytes(), str(path))
    path.write_bytes(os.urandom(2000))
    with pytest.raises(DamagedResult):
        read_cell(path.read_bytes(), str(path))


def test_wrong_shapes_are_refused() -> None:
    good = result()
    with pytest.raises(ResultError, match="shape"):
        write_cell(CellResult(good.cell, good.regret[:2], good.reward))


def test_a_table_of_many_cells_loses_only_what_is_damaged(tmp_path: Path) -> None:
    several = [result(k, start=2 * k, stop=2 * k + 4) for k in range(3)]
    entries = [one.entry for one in several]
    assert from_rows(to_rows(entries)) == entries and len(to_rows(entries)) == 1
    path = tmp_path / "result.parquet"
    path.write_bytes(table_bytes(several))
    back, damaged = read_table(path.read_bytes(), "t", entries)
    assert [one.digest for one in back] == [one.digest for one in several] and not damaged
    for value in (lambda curve: [0.0, *curve[1:]], lambda curve: curve[:-1], None):
        rewritten(path, _set("regret", 5, value))
        back, (lost,) = read_table(path.read_bytes(), "t", entries)
        assert [one.digest for one in back] == [several[0].digest, several[2].digest]
        assert str(several[1].cell) in str(lost)
    extra = result(9, start=40, stop=44).entry
    assert "damaged or gone" in str(read_table(path.read_bytes(), "t", [*entries, extra])[1][-1])


def test_blocks_of_a_cell_share_their_identity_only() -> None:
    one = cell()
    other = one.block(6, 9)
    assert [*other.replicates] == [6, 7, 8] and other.identity == one.identity
    assert other.key != one.key and other.key == cell(start=6, stop=9).key
    changed = other.model_copy(update={"seed": 8})
    assert changed.key == cell(start=6, stop=9, seed=8).key


@pytest.mark.parametrize(("start", "stop"), [(3, 3), (4, 3), (-1, 3), (True, 3), (0, 3.0), ("", 3)])
def test_a_block_without_replicates_is_refused(start: Any, stop: Any) -> None:
    with pytest.raises(ValueError, match=r"replicates .* are none"):
        cell().block(start, stop)
    rows = to_rows([result(), result(start=6, stop=10)])
    rows[0]["blocks"][1] |= {"start": start, "stop": stop}
    with pytest.raises(ValueError, match=r"replicates .* are none"):
        from_rows(rows)


def test_the_key_is_the_configuration() -> None:
    base = cell()
    assert cell().key == base.key and len(base.key) == 64
    changes: list[dict[str, Any]] = [
        {"seed": 8}, {"start": 1}, {"stop": 5}, {"checkpoints": (1, 20)}, {"algorithm": 2},
        {"data": "x"}, {"horizon": 21}, {"agent": {"budget": None}}, {"agent": {"source": "2"}},
        {"agent": {"params": {"a": 1}}}, {"agent": {"label": "x"}}, {"agent": {"budget": "rho=1"}},
    ]  # fmt: skip
    keys = {cell(**change).key for change in changes}
    assert len(keys | {base.key}) == len(changes) + 1
    assert Cell.read(base.text).key == base.key
    for forged in ({"spec": {"name": "random"}}, {"maker": "os:abort"}):
        told = json.loads(base.text)
        with pytest.raises(ValueError, match="agent"):
            Cell.read(json.dumps({**told, "agent": {**told["agent"], **forged}}))
    said = base.model_copy(update={"task": base.task.model_copy(update={"description": "x"})})
    assert said.key == base.key, "words decide no number"


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
)
def test_plain_values_stay_what_they_are(value: Any) -> None:
    assert plain(value, "x") == value
    assert canonical(plain(value, "x")) == canonical(value)


def test_numpy_values_become_plain_and_others_are_refused() -> None:
    value = {"a": np.float64(1.5), "b": np.arange(3), "c": (np.int32(2), True)}
    assert plain(value, "x") == {"a": 1.5, "b": [0, 1, 2], "c": [2, True]}
    for bad in (object(), float("nan"), np.inf, {1: 2}, {"a": {2}}, np.array([np.nan]), 1j):
        with pytest.raises(ParameterError, match=r"^x"):
            plain(bad, "x")
