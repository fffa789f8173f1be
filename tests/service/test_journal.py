"""The journal has every event that was written, and nothing that was not."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.errors import DataError
from dpb_gym.service.journal import Journal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab\n\"", max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journals") / "journal"


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.text("xyz"), VALUES, max_size=3), max_size=5), st.data())
def test_a_cut_loses_the_events_behind_it_only(
    place: Path, events: list[dict[str, Any]], data: st.DataObject
) -> None:
    place.unlink(missing_ok=True)
    journal = Journal(place)
    ends = [0]
    for event in events:
        journal.append(event)
        ends.append(journal.size)
    journal.close()
    assert ends[-1] == place.stat().st_size
    cut = data.draw(st.integers(0, ends[-1]))
    os.truncate(place, cut)
    whole = sum(end <= cut for end in ends) - 1
    again = Journal(place)
    assert again.events == events[:whole]
    again.append({"new": 1})
    again.close()
    last = Journal(place)
    last.close()
    assert last.events == [*events[:whole], {"new": 1}]


def test_a_changed_byte_before_other_events_is_an_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for n in range(3):
        journal.append({"n": n})
    journal.close()
    content = journal.path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        journal.path.write_bytes(changed)
        if place < 2 * len(content) // 3 - 1:
            with pytest.raises(DataError, match="damaged at byte"):
                Journal(journal.path)
            continue
        reopened = Journal(journal.path)
        reopened.close()
        assert reopened.events == [{"n": 0}, {"n": 1}, {"n": 2}][: len(reopened.events)]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    Journal(tmp_path / "journal").close()
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append({"n": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.size + 5, limits[1]))
    try:
        with pytest.raises(DataError, match="cannot be used"):
            journal.append({"n": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.close()
    again = Journal(journal.path)
    again.close()
    assert again.events == [{"n": 1}]


def test_a_journal_can_be_emptied(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append({"n": 1})
    journal.clear()
    assert journal.size == journal.path.stat().st_size == 0
    journal.append({"n": 2})
    journal.sync()
    journal.close()
    again = Journal(journal.path)
    again.close()
    assert again.events == [{"n": 2}] and again.size == journal.size
    for use in (journal.sync, journal.clear, lambda: journal.append({})):
        with pytest.raises(DataError, match="cannot be used"):
            use()
