"""The original Expedia files: independent readings and the pitfalls seen in them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import dpb_data
from dpb_gym.errors import DataError

PREFIX = "training_set_VU_DM.prefix.csv"
SUBSET = "kaggle_train_subset_1000_searches.csv"


@pytest.mark.real_data("expedia")
def test_the_cut_file_is_refused_or_repaired_on_request(real: Path) -> None:
    with pytest.raises(DataError, match=r"line 5060: expected 54 fields, found 35.*drop-last"):
        dpb_data.load_searches(real / PREFIX)
    with pytest.warns(UserWarning, match="dropped it and the 2 rows of its search 367"):
        log = dpb_data.load_searches(real / PREFIX, repair="drop-last-search")
    assert (log.n_searches, len(log), log.absent) == (208, 5_056, ())
    assert len(log.notes) == 1 and 367 not in log.columns["srch_id"]
    with open(real / PREFIX, newline="") as stream:
        rows = list(csv.DictReader(stream))[: len(log)]
    for name, zero in (("price_usd", False), ("prop_log_historical_price", True),
                       ("prop_review_score", True), ("visitor_hist_adr_usd", True),
                       ("position", False), ("booking_bool", False)):  # fmt: skip
        texts = [row[name] for row in rows]
        expected = np.array([np.nan if t in ("", "NULL") else float(t) for t in texts])
        if zero:
            expected[expected == 0] = np.nan
        np.testing.assert_array_equal(log.columns[name], expected)
    # Both ways of writing "missing" occur, and places on the page have gaps.
    assert any(row["prop_review_score"] == "" for row in rows)
    assert any(row["visitor_hist_adr_usd"] == "NULL" for row in rows)
    ends = np.maximum.reduceat(log.columns["position"], log.starts[:-1])
    random = np.array([rows[start]["random_bool"] == "1" for start in log.starts[:-1]])
    assert (ends > np.diff(log.starts))[~random].all() and (~random).sum() > 100


@pytest.mark.real_data("expedia")
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_responses(real: Path) -> None:
    log = dpb_data.load_searches(real / PREFIX, repair="drop-last-search")
    booked = np.add.reduceat(log.columns["booking_bool"], log.starts[:-1])
    clicks = np.add.reduceat(log.columns["click_bool"], log.starts[:-1])
    assert booked.sum() == 138 and (booked == 0).sum() == 70
    # Every complete search has a click: with clicks as choices there is always a choice.
    assert clicks.min() == 1
    bookings = dpb_data.encode_searches(log, "all")
    assert (bookings.choice == -1).sum() == 70
    assert (dpb_data.encode_searches(log, "all", choice="click").choice >= 0).all()


@pytest.mark.real_data("expedia")
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_features_of_the_training_file(real: Path) -> None:
    log = dpb_data.load_searches(real / PREFIX, repair="drop-last-search")
    top = dpb_data.encode_searches(log)
    assert (top.destination, len(top.users), len(top.hotel_ids)) == (8192, 5, 37)
    everything = dpb_data.encode_searches(log, "all")
    assert everything.hotels.shape == (4_651, 10) and everything.users.shape == (208, 13)
    assert set(everything.dropped) == {"hist_star", "hist_price"}
    assert "93.3%" in everything.dropped["hist_star"]
    kept = dpb_data.encode_searches(log, "all", max_missing=1.0)
    assert kept.users.shape[1] > 13 and not {"hist_star", "hist_price"} & set(kept.dropped)


@pytest.mark.real_data("expedia")
def test_the_subset_with_fewer_columns(real: Path) -> None:
    log = dpb_data.load_searches(real / SUBSET)
    assert (log.n_searches, len(log), log.n_hotels) == (1_000, 26_192, 18_661)
    assert len(log.destinations) == 768
    assert set(log.absent) == {
        "site_id", "visitor_hist_starrating", "visitor_hist_adr_usd", "prop_review_score",
        "position", "click_bool",
    }  # fmt: skip
    everything = dpb_data.encode_searches(log, "all")
    assert (everything.choice >= 0).all()
    assert "95.6%" in everything.dropped["log_hist_price"]
    assert everything.hotels.shape[1] == 7 and everything.users.shape[1] == 12
    top = dpb_data.encode_searches(log)
    assert (top.destination, len(top.users), len(top.hotel_ids)) == (21871, 9, 61)


@pytest.mark.real_data("expedia")
def test_a_folder_with_two_files_is_ambiguous(real: Path) -> None:
    with pytest.raises(DataError, match="Give the path of the file itself"):
        dpb_data.load_searches(real)
