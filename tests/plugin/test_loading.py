"""Plug-ins are loaded once, and every thread that asks for them has them."""

from __future__ import annotations

import sys
import threading
import time
from importlib.metadata import EntryPoint

import pytest

from dpb_gym import lazy

SOURCE = """
import threading
from dpb_gym import lazy

started, go_on = threading.Event(), threading.Event()
lazy.load_plugins("tests")  # as an agent does that registers itself
started.set()
go_on.wait(30)
finished = True
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """Entry point of a module whose import waits."""
    (tmp_path / "slow_plugin.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("slow", "slow_plugin", "tests")
    monkeypatch.setattr(lazy, "_plugins", lambda group: [(False, point)])
    yield point
    lazy._loaded.discard(point)
    sys.modules.pop("slow_plugin", None)


def test_a_second_thread_waits_until_a_plugin_is_loaded(slow):
    first = threading.Thread(target=lazy.load_plugins, args=("tests",))
    first.start()
    while not hasattr(sys.modules.get("slow_plugin"), "started"):
        time.sleep(0.001)
    module = sys.modules["slow_plugin"]
    assert module.started.wait(30)
    seen = []

    def ask():
        lazy.load_plugins("tests")
        seen.append(hasattr(module, "finished"))

    second = threading.Thread(target=ask)
    second.start()
    second.join(0.2)
    assert not seen, "the plug-in is not loaded yet"
    module.go_on.set()
    first.join(30)
    second.join(30)
    assert seen == [True]
    assert slow in lazy._loaded


def test_a_plugin_that_fails_is_named_once(monkeypatch):
    point = EntryPoint("broken", "no_such_plugin", "tests")
    monkeypatch.setattr(lazy, "_plugins", lambda group: [(False, point)])
    with pytest.warns(
        RuntimeWarning, match=r"could not load the tests of no_such_plugin \(broken\)"
    ):
        assert lazy.load_plugins("tests") == []
    assert lazy.load_plugins("tests") == []
    lazy._loaded.discard(point)
