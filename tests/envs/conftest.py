"""Fixtures of the tests of environments."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_garbage_of_other_files() -> None:
    """Collect what tests of other files left, such as sockets of servers.

    Tests of environments turn warnings into errors. A ResourceWarning of an earlier test's socket
    would fail the test during which it is collected.
    """
    gc.collect()
