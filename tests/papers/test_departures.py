"""The table of departures from print lists every switch, with a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dpb_gym.privacy import private_factors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
HEAD = "| paper | place | printed | here | switch | test |"
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in PAGE.partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
]


def switches() -> set[tuple[str, str]]:
    dpmnl = pytest.importorskip("dpb_agents.assortment.dpmnl")
    approx = pytest.importorskip("dpb_agents.assortment.dpmnl_approx")
    pricing = pytest.importorskip("dpb_agents.pricing.private_pricing")
    tables = {
        "dpmnl": dpmnl.LITERAL,
        "dpmnl-approx": approx.LITERAL_APPROX,
        "private-pricing": pricing.LITERAL,
        "private_factors": private_factors.LITERAL,
    }
    return {(where, form) for where, forms in tables.items() for form in forms}


def test_the_table_lists_every_switch() -> None:
    listed = set()
    for row in ROWS:
        *places, form = re.findall(r"`([\w-]+)`", row[4]) if "none" not in row[4] else [""]
        listed |= {(place, form) for place in places}
    assert listed == switches()


def test_every_departure_has_a_test() -> None:
    assert len(ROWS) == 12
    for row in ROWS:
        path, _, name = row[5].strip("`").partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name or 'test_'}" in text, row
