"""Choice sets: long and wide files, published layouts, and rejected tables."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_data
from dpb_data import synthetic
from dpb_gym.errors import DataError, DPBError, UnknownNameError

NAMES = {"case": "trip", "item": "mode", "chosen": "took", "features": ["cost", "fuel"]}
ROWS: dict[str, Any] = {
    "trip": [7, 9, 7, 9, 7, 12, 12],
    "mode": ["car", "car", "bus", "air", "air", "bus", "car"],
    "took": [0, 1, 1, 0, 0, 0, 0],
    "cost": [30.0, 31.0, 10.0, 200.0, 150.0, 12.0, 33.0],
    "fuel": ["petrol", "petrol", "diesel", "kerosene", "kerosene", "diesel", "petrol"],
    "who": ["ann", "bob", "ann", "bob", "ann", "ann", "ann"],
}


def changed(**columns: Any) -> dict[str, Any]:
    return {**ROWS, **columns}


def test_rows_are_grouped_by_set_and_text_becomes_levels() -> None:
    table = dpb_data.choices(ROWS, **NAMES, person="who")
    assert table.starts.tolist() == [0, 3, 5, 7]
    assert table.item_ids[table.items].tolist() == ["car", "bus", "air", "car", "air", "bus", "car"]
    assert table.chosen.tolist() == [1, 0, -1], "bus, car, and nothing"
    assert table.feature_names == ("cost", "fuel=kerosene", "fuel=petrol")
    assert table.features[:, 0].tolist() == [30.0, 10.0, 150.0, 31.0, 200.0, 12.0, 33.0]
    assert table.features[2].tolist() == [150.0, 1.0, 0.0]
    assert table.people is not None and table.people.tolist() == [0, 1, 0]
    assert table.n_sets == 3 and len(table) == 7
    assert dpb_data.choices(ROWS, **NAMES).people is None
    with pytest.raises(ValueError, match="read-only"):
        table.features[0, 0] = 1.0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"took": [1, 1, 1, 0, 0, 0, 0]}, "trip 7: expected at most one choice, found two"),
        (
            {"mode": ["car", "car", "car", "air", "air", "bus", "car"]},
            "row 2: .* found car twice in trip 7",
        ),
        ({"took": [0] * 7}, "of which some have a choice"),
        ({"took": [0, 1, 2, 0, 0, 0, 0]}, "row 2: expected took to be .* found '2'"),
        (
            {"took": ["no", "perhaps", "no", "no", "no", "no", "no"]},
            r"row 1: expected took to be .* \(0 or 1\).*, found 'perhaps'",
        ),
        (
            {"cost": [1.0, np.nan, 1, 1, 1, 1, 1]},
            r"left out \(1 row\): more than 10% of 3",
        ),
        ({"trip": [7, None, 7, 9, 7, 12, 12]}, r"trip: rows without a value left out \(1 row\)"),
        ({"cost": [5.0] * 7, "fuel": ["a", "b", "a", "b", "a", "b", "b"]}, "no attribute varies"),
    ],
)
def test_inconsistent_tables_are_rejected(columns: dict[str, Any], message: str) -> None:
    features = ["cost"] if "varies" in message else NAMES["features"]
    with pytest.raises(DPBError, match=message):
        dpb_data.choices(changed(**columns), **{**NAMES, "features": features})


def test_text_with_too_many_levels_is_refused() -> None:
    frame = {**synthetic.mode_canada(40)}
    frame["name"] = [f"n{k}" for k in range(len(frame["alt"]))]
    with pytest.raises(DataError, match=r"name is text with \d+ values, more than 50"):
        dpb_data.choices(frame, case="case", item="alt", chosen="choice", features=["name"])


def write_csv(path: Path, frame: dict[str, Any], quote: bool = False) -> Path:
    mark = '"' if quote else ""
    lines = [",".join(f"{mark}{name}{mark}" for name in frame)]
    lines += [",".join(map(str, row)) for row in zip(*frame.values())]
    raw = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["trips.csv", "trips.csv.gz"])
def test_layouts_are_detected_by_columns(tmp_path: Path, name: str) -> None:
    path = write_csv(tmp_path / name, {"": range(1, 9999), **synthetic.mode_canada()}, quote=True)
    table = dpb_data.load_choices(path)
    same = dpb_data.load_choices("synthetic-mode-canada")
    np.testing.assert_array_equal(table.features, same.features)
    np.testing.assert_array_equal(table.chosen, same.chosen)
    assert table.name == "trips" and table.feature_names == ("cost", "ivt", "ovt", "freq")
    if name.endswith(".gz"):
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(DataError, match="packed data"):
            dpb_data.load_choices(path)


@pytest.mark.slow
def test_a_packed_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"case,alt,choice,cost\n" + bytes(100 << 20)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="unpacks to more than any known data set needs"):
        dpb_data.load_choices(path, layout="mode-canada")


def swiss(n: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    frame: dict[str, Any] = {"ID": 1 + np.arange(n) // 3, "GA": rng.integers(0, 2, n)}
    for mode in ("TRAIN", "SM", "CAR"):
        frame[f"{mode}_AV"] = np.ones(n, int)
        frame[f"{mode}_TT"] = rng.integers(30, 200, n)
        frame[f"{mode}_CO"] = rng.integers(10, 90, n)
    frame["CAR_AV"] = np.arange(n) % 4 > 0
    frame["TRAIN_HE"], frame["SM_HE"] = rng.integers(1, 60, n), rng.integers(1, 30, n)
    frame["SM_SEATS"] = rng.integers(0, 2, n)
    frame["CHOICE"] = rng.integers(0, 4, n)
    return {k: (v.astype(int) if k != "CHOICE" else v) for k, v in frame.items()}


def test_a_wide_file_row_by_row(tmp_path: Path) -> None:
    frame = swiss()
    table = dpb_data.load_choices(write_csv(tmp_path / "s.csv", frame))
    names = ("TRAIN", "SM", "CAR")
    rows, chosen, people = [], [], []
    left_out = 0
    for k in range(60):
        pick = frame["CHOICE"][k]
        offered = [m for m in range(3) if frame[f"{names[m]}_AV"][k]]
        if pick == 0 or pick - 1 not in offered:
            left_out += 1
            continue
        chosen.append(offered.index(pick - 1))
        people.append(frame["ID"][k])
        for m in offered:
            free = frame["GA"][k] != 0 and m < 2
            rows.append([
                frame[f"{names[m]}_TT"][k], 0 if free else frame[f"{names[m]}_CO"][k],
                frame[f"{names[m]}_HE"][k] if m < 2 else 0, frame["SM_SEATS"][k] if m == 1 else 0,
            ])  # fmt: skip
    assert left_out > 5 and table.notes == (f"s: left out {left_out} sets without a known choice",)
    np.testing.assert_array_equal(table.features, rows)
    assert table.chosen.tolist() == chosen and table.people is not None
    assert len(np.unique(table.people)) == len(set(people))


def test_other_files(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", {"a": [1], "b": [2]})
    with pytest.raises(DataError, match=r"columns of one of mode-canada.*dpb_data\.choices\(file"):
        dpb_data.load_choices(path)
    with pytest.raises(UnknownNameError, match="did you mean 'swissmetro'"):
        dpb_data.load_choices(path, layout="swismetro")
    with pytest.raises(DataError, match="expected the columns case, alt"):
        dpb_data.load_choices(path, layout="mode-canada")
    with pytest.raises(DataError, match="holds ratings, expected one of choices: synthetic-mode"):
        dpb_data.load_choices("ml-1m")
    with pytest.raises(DataError, match="expected the path of a CSV"):
        dpb_data.load_choices(tmp_path)
    assert dpb_data.check("synthetic-mode-canada").ok


@pytest.mark.slow
@pytest.mark.real_data("choice")
def test_the_published_files(real: Path) -> None:
    sizes = {
        "ModeCanada": (4_324, 15_520), "electricity": (4_308, 17_232),
        "swissmetro": (10_719, None), "car": (4_654, 27_924),
    }  # fmt: skip
    for name, (sets, rows) in sizes.items():
        table = dpb_data.load_choices(real / f"{name}.csv.gz")
        assert table.n_sets == sets, name
        assert rows is None or len(table) == rows
        assert (table.chosen >= 0).all()
    # Against an independent reading of the file.
    with gzip.open(real / "ModeCanada.csv.gz", "rt") as stream:
        lines = list(csv.DictReader(stream))
    table = dpb_data.load_choices(real / "ModeCanada.csv.gz")
    by_case: dict[int, list[dict[str, str]]] = {}
    for line in lines:
        by_case.setdefault(int(line["case"]), []).append(line)
    taken = table.item_ids[table.items[table.starts[:-1] + table.chosen]].tolist()
    for s, case in enumerate(sorted(by_case)):
        group = by_case[case]
        assert [row["alt"] for row in group if row["choice"] == "1"] == [taken[s]]
        block = table.features[table.starts[s] : table.starts[s + 1]]
        assert block.tolist() == [
            [float(row[f]) for f in ("cost", "ivt", "ovt", "freq")] for row in group
        ]
