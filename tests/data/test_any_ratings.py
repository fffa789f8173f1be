"""User ratings: frames, CSV and Parquet files, with named columns and a declared scale."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpb_data
import dpb_gym
from dpb_gym.errors import DataError, DPBError, ParameterError
from dpb_gym.exchange.verification import unavailable

NAMES = {"user": "who", "item": "what", "rating": "stars", "rating_range": (1, 10)}
RNG = np.random.default_rng(5)
PAIRS = RNG.permutation(np.unique(RNG.integers(0, 60 * 40, 3000)))
COLUMNS: dict[str, Any] = {
    "who": [f"user {k // 40}" for k in PAIRS],
    "what": [f"a, {k % 40}" for k in PAIRS],  # a comma: needs quotes in a CSV file
    "stars": RNG.integers(1, 11, len(PAIRS)),
    "when": RNG.integers(10**9, 2 * 10**9, len(PAIRS)),
    "named": [f"Thing {k % 40}" for k in PAIRS],
}


class Frame:
    """What pandas and polars share: columns by name, each of which NumPy can read."""

    columns = tuple(COLUMNS)

    def __getitem__(self, name: str) -> Any:
        kind = object if isinstance(COLUMNS[name], list) else np.int32
        return np.array(COLUMNS[name], dtype=kind)


class Stream:
    def __arrow_c_stream__(self, schema: object = None) -> object:
        return pa.table(COLUMNS).__arrow_c_stream__(schema)


class Interchange:
    def __dataframe__(self, *args: Any, **kwargs: Any) -> Any:
        return pa.table(COLUMNS).__dataframe__(*args, **kwargs)


def csv_bytes(delimiter: str = ",") -> bytes:
    rows = [delimiter.join(COLUMNS)]
    for who, what, *rest in zip(*COLUMNS.values()):
        rows.append(delimiter.join([who, f'"{what}"', *map(str, rest)]))
    return ("\n".join(rows) + "\n").encode()


def in_file(name: str, write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return make


SOURCES: dict[str, Callable[[Path], Any]] = {
    "mapping": lambda folder: COLUMNS,
    "arrow": lambda folder: pa.table(COLUMNS),
    "frame": lambda folder: Frame(),
    "stream": lambda folder: Stream(),
    "interchange": lambda folder: Interchange(),
    "csv": in_file("shop.csv", lambda path: path.write_bytes(csv_bytes())),
    "tabs": in_file("shop.tsv", lambda path: path.write_bytes(csv_bytes("\t"))),
    "gzip": in_file("shop.csv.gz", lambda path: path.write_bytes(gzip.compress(csv_bytes()))),
    "parquet": in_file("shop.parquet", lambda path: pq.write_table(pa.table(COLUMNS), path)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_table(tmp_path: Path, kind: str) -> None:
    source = SOURCES[kind](tmp_path)
    table = dpb_data.ratings(source, **NAMES, time="when", title="named")
    expected = dpb_data.RatingTable.from_columns(
        "x", COLUMNS["who"], COLUMNS["what"], COLUMNS["stars"], rating_range=(1, 10)
    )
    assert table.digest() == expected.digest()
    assert table.user_ids[table.users].tolist() == COLUMNS["who"]
    assert table.item_ids[table.items].tolist() == COLUMNS["what"]
    assert table.timestamps is not None and table.timestamps.tolist() == COLUMNS["when"].tolist()
    assert table.titles == [f"Thing {item.split()[1]}" for item in table.item_ids]
    assert table.name == ("shop" if isinstance(source, Path) else "frame")


@pytest.mark.parametrize(
    "text",
    ["1574553603", "2019-11-24 00:00:03", "2019-11-24T00:00:03.9", "2019-11-24 01:00:03+01:00"],
)
def test_times_are_seconds_or_dates(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.csv"
    path.write_text(f"who,what,stars,when\na,b,3,{text}\n")
    stamps = dpb_data.ratings(path, **NAMES, time="when").timestamps
    assert stamps is not None and stamps.tolist() == [1_574_553_603]
    frame = {
        "who": ["a"],
        "what": ["b"],
        "stars": [3],
        "when": [np.datetime64("2019-11-24T00:00:03")],
    }
    assert dpb_data.ratings(frame, **NAMES, time="when").timestamps == stamps
    path.write_text("who,what,stars,when\na,b,3,soon\n")
    with pytest.raises(DataError, match=r"expected when to be Unix seconds or a date .*soon"):
        dpb_data.ratings(path, **NAMES, time="when")


def test_numbers_as_ids_stay_numbers_and_the_scale_counts(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("who,what,stars\n12,7,1\n9,07,10\n")
    table = dpb_data.ratings(path, **NAMES)
    assert table.user_ids.tolist() == [9, 12] and table.item_ids.tolist() == [7]
    wider = dpb_data.ratings(path, **{**NAMES, "rating_range": (0, 10)})
    assert wider.digest() != table.digest() and table.normalised().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,x,11\n", r"shop\.csv: line 2: expected stars to be a number from 1 to 10, found '11'"),
        ("a,x,3\na,y,0\n", "line 3: expected stars to be a number from 1 to 10, found '0'"),
        ('"a, b",x,good\n', "line 2: expected stars to be a number .* found 'good'"),
        ("a,x,good\n", "line 2: expected stars to be a number .* found 'good'"),
        ("a,x,\n", "line 2: expected stars to be a number .* found none"),
        ("a,x,nan\n", "line 2: expected stars .* found 'nan'"),
        (",x,3\n", "line 2: expected who to be some id, found none"),
        ("a,x\n", "line 2: expected 3 fields separated by ',', found 2"),
        ("a,x,3\nb,y,5", "line 3: expected a newline at the end of the file"),
        (
            "a,x,3\na,x,4\n",
            "line 3: expected each user .* found user a rating item x already in line 2",
        ),
        ("", "nothing after the header"),
        (
            "a,x,3\nb,\xff\xfe,4\n",
            "shop.csv: line 3: expected what to be some id, found .* invalid UTF8",
        ),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "shop.csv"
    path.write_bytes(b"who,what,stars\n" + text.encode("latin-1"))
    with pytest.raises(DataError, match=expected):
        dpb_data.ratings(path, **NAMES)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"stars": [1, 2, 11]}, "frame: row 2: expected stars .* from 1 to 10, found '11'"),
        ({"stars": [1.0, np.nan, 2]}, "row 1: expected stars .* found none"),
        ({"stars": ["1", "x", "2"]}, "expected stars to be a number from 1 to 10"),
        ({"who": ["a", None, "b"]}, "row 1: expected who to be some id, found none"),
        ({"who": [1.0, np.nan, 2]}, "row 1: expected who to be some id, found none"),
        ({"who": []}, "expected a column who with rows"),
    ],
)
def test_bad_frames_are_refused_with_their_row(change: dict[str, Any], expected: str) -> None:
    good = {"who": ["a", "b", "c"], "what": ["x", "x", "x"], "stars": [1, 2, 3]}
    with pytest.raises(DataError, match=expected):
        dpb_data.ratings({**good, **change}, **NAMES)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected the columns uid, found who, what, stars, when"):
        dpb_data.ratings(COLUMNS, **{**NAMES, "user": "uid"})
    with pytest.raises(ParameterError, match=r"need rating, rating_range: dpb_data\.ratings"):
        dpb_data.ratings(COLUMNS, user="who", item="what")
    with pytest.raises(DataError, match="got a int"):
        dpb_data.ratings(3, **NAMES)
    path = SOURCES["csv"](tmp_path)
    with pytest.raises(DataError, match=r"dpb_data\.ratings\(file, user=, item=, rating="):
        dpb_data.load_ratings(path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(DataError, match="expected a Parquet file"):
        dpb_data.ratings(tmp_path / "bad.parquet", **NAMES)


def test_tables_on_other_scales_are_not_read_as_jester(tmp_path: Path) -> None:
    rows = ["10," + ",".join(str(1 + (k + j) % 10) for j in range(10)) for k in range(4)]
    path = tmp_path / "jester.csv"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"found none below 0 \(from 1 to 10\).*rating_range="):
        dpb_data.load_ratings(path)
    assert len(dpb_data.load_ratings(path, strict=False)) == 40
    with pytest.raises(DPBError, match="none below 0"):
        dpb_gym.make_problem("DPB/JesterReplay-v0", data=str(path))


SMALL = {"dim": 4, "horizon": 50}


def test_replay_environments_take_tables_and_mappings(tmp_path: Path) -> None:
    table = dpb_data.ratings(COLUMNS, **NAMES, name="shop")
    path = SOURCES["csv"](tmp_path)
    mapping = {"source": str(path), **NAMES, "rating_range": [1, 10]}
    for data in (table, mapping):
        problem = dpb_gym.make_problem("DPB/MovieLensReplay-v0", data=data, **SMALL)
        assert problem.summary()["data"] == "shop"
        env = gym.make("DPB/MovieLensReplay-v0", data=data, **SMALL)
        env.reset(seed=3)
        assert 0.0 <= env.step(0)[1] <= 1.0
    for bad, message in (
        (COLUMNS, "need user, item, rating, rating_range"),
        (str(path), "a table of your own loads with"),
        ({"source": COLUMNS, "colour": "red"}, "unexpected keyword argument 'colour'"),
    ):
        with pytest.raises(DPBError, match=message):
            dpb_gym.make_problem("DPB/MovieLensReplay-v0", data=bad, **SMALL)


def test_results_name_a_table_and_its_digest(tmp_path: Path) -> None:
    table = dpb_data.ratings(COLUMNS, **NAMES, name="shop")
    path = SOURCES["csv"](tmp_path)
    mapping = {"source": str(path), **NAMES, "rating_range": [1, 10]}

    def run(data: Any, **kwargs: Any) -> Any:
        return dpb_gym.evaluate(
            "DPB/MovieLensReplay-v0", ["random"], horizon=40, replicates=2,
            env_kwargs={"data": data, "dim": 4}, **kwargs,
        )  # fmt: skip

    inside, outside = run(table), run(mapping)
    assert inside.final_regret("random").tolist() == outside.final_regret("random").tolist()
    other = dpb_data.ratings(COLUMNS, **{**NAMES, "rating_range": (0, 10)}, name="shop")
    keys = set()
    for k, (result, data) in enumerate(((inside, table), (outside, table), (run(other), other))):
        kept = dpb_gym.Result.load(result.save(tmp_path / f"run {k}"))
        (cell,) = [cell_result.cell for cell_result in kept.cells]
        assert cell.data == data.digest()
        keys.add(cell.key)
    assert len(keys) == 3
    stored = inside.cells[0].cell.task.identity["env_kwargs"]["data"]
    assert stored == {"name": "shop", "digest": table.digest()}
    with pytest.raises(DataError, match=r"'shop' \(digest .*given in memory"):
        dpb_gym.make_problem("DPB/MovieLensReplay-v0", data=stored, **SMALL)


def test_a_table_given_in_memory_is_stored_verified_as_missing_and_reaches_workers(
    tmp_path: Path,
) -> None:
    table = dpb_data.ratings(COLUMNS, **NAMES, name="shop")
    kwargs: dict[str, Any] = {
        "horizon": 40,
        "replicates": 2,
        "env_kwargs": {"data": table, "dim": 4},
    }
    here = dpb_gym.evaluate("DPB/MovieLensReplay-v0", ["random"], **kwargs)
    far = dpb_gym.evaluate("DPB/MovieLensReplay-v0", ["random", "lin-ucb"], **kwargs, workers=2)
    assert far.final_regret("random").tolist() == here.final_regret("random").tolist()
    here.save(tmp_path / "run")
    again = type(here).load(tmp_path / "run")
    (cell,) = [cell_result.cell for cell_result in again.cells]
    kept = dpb_gym.evaluate("DPB/MovieLensReplay-v0", ["random"], **kwargs, out=tmp_path / "kept")
    assert cell.data == table.digest() and cell.key == kept.cells[0].cell.key
    assert unavailable(cell) == "its data (shop) were given in memory and are not stored"
