"""Response tables: Open Bandit files, tables of prices, KuaiRec's matrix."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import synthetic
from dpb_gym.errors import DataError, DPBError
from dpb_gym.offline import LoggedData

COLUMNS, ITEMS = synthetic.open_bandit(400, 6, seed=3)


def write_csv(path: Path, frame: dict[str, Any]) -> Path:
    lines = [",".join(["", *frame])]
    lines += [",".join(map(str, [k, *row])) for k, row in enumerate(zip(*frame.values()))]
    path.write_text("\n".join(lines) + "\n")
    return path


def folder(tmp_path: Path, log: dict[str, Any] = COLUMNS, items: dict[str, Any] = ITEMS) -> Path:
    write_csv(tmp_path / "item_context.csv", items)
    return write_csv(tmp_path / "men.csv", log)


def test_a_log_is_read_value_by_value(tmp_path: Path) -> None:
    log = dpb_data.load_open_bandit(folder(tmp_path))
    assert log.name == "men" and len(log) == 400
    np.testing.assert_array_equal(log.actions, COLUMNS["item_id"])
    np.testing.assert_array_equal(log.positions + 1, COLUMNS["position"])
    np.testing.assert_array_equal(log.rewards, COLUMNS["click"])
    np.testing.assert_array_equal(log.propensities, COLUMNS["propensity_score"])
    assert log.timestamps[1] - log.timestamps[0] == 7 and log.timestamps[0] == 1_574_553_603
    assert log.affinity is not None and log.affinity.shape == (400, 6)
    for k in range(4):
        levels = np.unique(COLUMNS[f"user_feature_{k}"])
        np.testing.assert_array_equal(levels[log.users[:, k]], COLUMNS[f"user_feature_{k}"])
    np.testing.assert_array_equal(log.items[:, 0], ITEMS["item_feature_0"])
    name = log.item_names[1]
    column, level = name.split("=")
    np.testing.assert_array_equal(log.items[:, 1], np.asarray(ITEMS[column]) == level)


def test_a_folder_is_read_by_its_only_campaign(tmp_path: Path) -> None:
    path = folder(tmp_path)
    table = dpb_data.load_open_bandit(tmp_path)
    np.testing.assert_array_equal(table.actions, dpb_data.load_open_bandit(path).actions)
    (tmp_path / "women.csv").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"expected one campaign's CSV file, found men\.csv, women"):
        dpb_data.load_open_bandit(tmp_path)


def test_a_log_feeds_off_policy_evaluation(tmp_path: Path) -> None:
    log = dpb_data.load_open_bandit(folder(tmp_path))
    data = LoggedData.from_arrays(**log.arrays())
    assert (len(data), data.n_candidates) == (400, 6)
    assert np.abs(data.features).max() <= 1.0
    first = LoggedData.from_arrays(**log.arrays(position=0))
    assert len(first) == (COLUMNS["position"] == 1).sum()
    with pytest.raises(DataError, match="no round has position 7"):
        log.arrays(position=7)
    without = {k: v for k, v in COLUMNS.items() if "affinity" not in k}
    bare = dpb_data.load_open_bandit(folder(tmp_path, without))
    assert bare.affinity is None and bare.arrays()["features"].shape[2] == data.dim - 1


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("propensity_score", 0.0, "line 4: expected propensity_score"),
        ("propensity_score", 1.5, "line 4: expected propensity_score .* found '1.5'"),
        ("item_id", 6, "line 4: expected item_id to be a whole number from 0 to 5, found '6'"),
        ("click", 2, "line 4: expected click to be .* found '2'"),
        ("position", 0, "line 4: expected position"),
        ("timestamp", "yesterday", "expected timestamp to be Unix seconds or a date .*yesterday"),
        ("user_feature_1", "", "line 4: expected user_feature_1 to be some id, found none"),
    ],
)
def test_bad_logs(tmp_path: Path, column: str, value: Any, message: str) -> None:
    values = list(COLUMNS[column])  # type: ignore[call-overload]
    values[2] = value
    path = folder(tmp_path, {**COLUMNS, column: values})
    with pytest.raises(DataError, match=message):
        dpb_data.load_open_bandit(path)


def test_incomplete_folders(tmp_path: Path) -> None:
    path = folder(tmp_path, {k: v for k, v in COLUMNS.items() if k != "click"})
    with pytest.raises(DataError, match="expected the columns click"):
        dpb_data.load_open_bandit(path)
    path = folder(tmp_path, {k: v for k, v in COLUMNS.items() if not k.endswith("affinity_2")})
    with pytest.raises(DataError, match="expected the column user-item_affinity_2 as for"):
        dpb_data.load_open_bandit(path)
    path = folder(tmp_path, items={**ITEMS, "item_id": [1, 2, 3, 4, 5, 6]})
    with pytest.raises(DataError, match="number the items from 0"):
        dpb_data.load_open_bandit(path)
    path.with_name("item_context.csv").unlink()
    with pytest.raises(DataError, match=r"item_context\.csv"):
        dpb_data.load_open_bandit(path)
    assert dpb_data.check("synthetic-open-bandit").ok and dpb_data.check("synthetic-loans").ok


@pytest.mark.real_data("obd-men")
def test_the_published_samples(real: Path) -> None:
    random = dpb_data.load_open_bandit(real / "random" / "men.csv.gz")
    assert len(random) == 10_000 and len(random.items) == 34 and random.rewards.sum() == 46
    assert np.unique(random.propensities).tolist() == [1 / 34]
    thompson = dpb_data.load_open_bandit(real / "bts" / "men.csv.gz")
    assert thompson.rewards.sum() == 69 and thompson.propensities.min() > 0
    with gzip.open(real / "bts" / "men.csv.gz", "rt") as stream:
        rows = list(csv.DictReader(stream))
    assert thompson.actions.tolist() == [int(row["item_id"]) for row in rows]
    assert thompson.propensities.tolist() == [float(row["propensity_score"]) for row in rows]
    assert thompson.affinity is not None
    assert thompson.affinity[:, 33].tolist() == [float(r["user-item_affinity_33"]) for r in rows]
    # inverse propensity weights recover the random policy's mean reward
    data = LoggedData.from_arrays(**random.arrays())
    assert (data.propensities * 34).mean() == pytest.approx(1.0)


# ------------------------------------------------------------------------------------ prices


def test_prices_by_column_names(tmp_path: Path) -> None:
    frame = synthetic.loans(300)
    table = dpb_data.prices(frame, features=["term", "score", "channel"], person="amount")
    assert len(table) == 300 and table.feature_names == ("term", "score", "channel=partner")
    np.testing.assert_array_equal(table.price, frame["price"])
    np.testing.assert_array_equal(table.features[:, 2], frame["channel"] == "partner")
    path = write_csv(tmp_path / "loans.csv", frame)  # type: ignore[arg-type]
    again = dpb_data.prices(path, features=["term", "score", "channel"])
    np.testing.assert_array_equal(again.features, table.features)
    np.testing.assert_array_equal(again.bought, table.bought)
    assert again.name == "loans" and again.people is None
    assert dpb_data.prices(path).features.shape == (300, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": [0.0, 1.0]}, "row 0: expected price"),
        ({"price": [1.0, np.inf]}, "row 1: expected price .* found 'inf'"),
        ({"bought": [1, -1]}, "row 1: expected bought"),
        (
            {"age": [1.0, np.nan]},
            r"age: rows without a value left out \(1 row\): .*'drop'",
        ),
    ],
)
def test_bad_prices(change: dict[str, Any], message: str) -> None:
    good = {"price": [1.0, 2.0], "bought": [True, False], "age": [30, 40]}
    assert dpb_data.prices(good, features=["age"]).bought.tolist() == [1, 0]
    with pytest.raises(DPBError, match=message):
        dpb_data.prices({**good, **change}, features=["age"])


# ----------------------------------------------------------------------------------- KuaiRec


def test_kuairec_is_fully_observed_and_cut_at_two(tmp_path: Path) -> None:
    table = dpb_data.load_ratings("synthetic-kuairec")
    assert len(table) == table.n_users * table.n_items
    assert table.ratings.max() == 2.0 == table.rating_range[1]
    for zipped in (False, True):
        place = write_fixture(table, tmp_path / "mine", "kuairec-csv", zipped=zipped)
        read = dpb_data.load_ratings(place)
        assert read.digest() == table.digest()
        np.testing.assert_array_equal(read.item_ids, table.item_ids)
    path = tmp_path / "mine" / "small_matrix.csv"
    lines = path.read_text().splitlines()
    longer = [lines[0], lines[1].rsplit(",", 1)[0] + ",57.25", *lines[2:]]
    path.write_text("\n".join(longer) + "\n")
    assert dpb_data.load_ratings(path).ratings[0] == 2.0
    path.write_text("\n".join([*lines, lines[5]]) + "\n")
    with pytest.raises(DataError, match=r"line 4802: expected each user .* already in line 6"):
        dpb_data.load_ratings(path)
    with pytest.raises(DataError, match="expected 4,676,570 ratings, found 4,800"):
        dpb_data.load_ratings(write_fixture(table, tmp_path / "kuairec", "kuairec-csv"))
