"""Cache of compiled kernels: missing directories and damaged files never break a run."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest
from numba import config, njit

import dpb_gym
from dpb_gym.kernel_cache import compilations
from dpb_gym.kernels._jit import jit
from dpb_gym.kernels._parts import _parts

CODE = (
    "import sys, warnings, numpy as np\n"
    "with warnings.catch_warnings(record=True) as seen:\n"
    "    warnings.simplefilter('always')\n"
    "    from dpb_gym.kernels import linalg\n"
    "    one = np.ones(3)\n"
    "    print(linalg.dot_one(one, one), sum(linalg.dot_one.stats.cache_hits.values()))\n"
    "    assert linalg.__file__.startswith(sys.argv[1]), linalg.__file__\n"
    "print([str(w.message) for w in seen if w.category is RuntimeWarning])\n"
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the library and compile a kernel."""
    home = copied(tmp_path_factory.mktemp("compiled"))
    assert play(home) == ("3.0 0", [])
    return home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Copy the library, so that its kernel cache is empty."""
    return copied(tmp_path)


def copied(folder: Path) -> Path:
    home = folder / "copy"
    source = Path(dpb_gym.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, home / "dpb_gym", ignore=ignored)
    return home


def start(home: Path, code: str = CODE, **variables: str) -> subprocess.Popen[str]:
    """Start a process that calls a kernel."""
    environment = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR",)}
    environment |= {"PYTHONPATH": str(home), "XDG_CACHE_HOME": str(home / "user"), **variables}
    command = [sys.executable, "-c", code, str(home)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=home)


def finish(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Return the kernel's result with its number of cache hits, and the warnings."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    result, messages = out.splitlines()
    return result, eval(messages)


def play(home: Path, **variables: str) -> tuple[str, list[str]]:
    return finish(start(home, **variables))


def test_the_second_process_loads_what_the_first_compiled(compiled, tmp_path):
    package = tmp_path / "copy"
    shutil.copytree(compiled, package)
    assert play(package) == ("3.0 1", [])
    # a changed kernel invalidates the kernels that call it
    text = package / "dpb_gym" / "kernels" / "elementary.py"
    text.write_text(text.read_text() + "\n# changed\n")
    assert play(package) == ("3.0 0", [])


def test_two_processes_compile_a_kernel_once(package):
    processes = [start(package) for _ in range(2)]
    assert sorted(finish(process) for process in processes) == [("3.0 0", []), ("3.0 1", [])]


def test_a_function_without_source_lines_is_compiled_once(tmp_path, monkeypatch, recwarn):
    def unreadable(function):
        raise tokenize.TokenError("unterminated string literal")

    monkeypatch.setattr(inspect, "getsourcelines", unreadable)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile("def twice(x): return 2 * x", __file__, "exec"), names)
    first, second = jit(names["twice"]), jit(names["twice"])
    assert (first(2), second(2)) == (4, 4)
    assert [sum(each.stats.cache_hits.values()) for each in (first, second)] == [0, 1]
    assert not recwarn.list


FORK = (
    "import os, numpy as np\n"
    "from dpb_gym.kernels import linalg\n"
    "print(linalg.dot_one(np.ones(3), np.ones(3)), 0, flush=True)\n"
    "child = os.fork()\n"
    "if not child:\n"
    "    linalg.dot_one(np.ones(3, np.float32), np.ones(3, np.float32))\n"
    "    os._exit(0)\n"
    "print([os.waitpid(child, 0)[1]])\n"
)


def test_a_forked_process_compiles_kernels_of_which_its_parent_held_the_lock(package):
    assert finish(start(package, FORK)) == ("3.0 0", [0])


def test_copies_of_the_library_share_a_cache_directory(package, tmp_path):
    shutil.copytree(package, tmp_path / "other")
    shared = {"NUMBA_CACHE_DIR": str(tmp_path / "shared")}
    assert play(package, **shared) == ("3.0 0", [])
    assert play(tmp_path / "other", **shared) == ("3.0 1", [])
    text = tmp_path / "other" / "dpb_gym" / "kernels" / "elementary.py"
    text.write_text(text.read_text() + "\n# changed\n")
    assert play(tmp_path / "other", **shared) == ("3.0 0", [])
    assert play(package, **shared) == ("3.0 1", [])


@pytest.mark.parametrize(
    ("ending", "damage"), [("nbi", b""), ("nbi", b"\x80\x05K\x01."), ("nbc", b""), ("nbc", b"no")]
)
def test_damaged_files_are_replaced(compiled, tmp_path, ending, damage):
    package = tmp_path / "copy"
    shutil.copytree(compiled, package)
    (file,) = (package / "dpb_gym" / "kernels" / "__pycache__").glob(f"linalg.dot_one*.{ending}")
    file.write_bytes(damage)
    result, messages = play(package)
    assert result == "3.0 0" and len(messages) <= 1
    assert all("recompiled" in message for message in messages)
    assert play(package) == ("3.0 1", [])


def blocked(home: Path) -> dict[str, str]:
    """Make every cache directory a file, in which not even root can write."""
    places = (home / "dpb_gym" / "kernels" / "__pycache__", home / "user", home / "blocked")
    for place in places:
        place.write_bytes(b"")
    return {"NUMBA_CACHE_DIR": str(home / "blocked"), "PYTHONDONTWRITEBYTECODE": "1"}


def test_without_a_writable_directory_kernels_are_cached_for_the_run(package, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    result, messages = play(package, TMPDIR=str(temporary), **blocked(package))
    assert result == "3.0 0"
    (message,) = messages
    assert "for this run" in message and "NUMBA_CACHE_DIR" in message
    assert not list(temporary.iterdir())  # cleaned up


def test_without_any_directory_there_is_no_cache(package):
    variables = blocked(package)
    result, messages = play(package, DPB_GYM_KERNELS=str(package / "blocked"), **variables)
    assert result == "3.0 0"
    (message,) = messages
    assert "in every process" in message


inner: Any = njit(lambda x: x + 1.0)
outer: Any = njit(lambda x: inner(x) * inner(2.0 * x))


@jit
def double(x: Any) -> Any:
    return 2.0 * x


@jit
def thrice(x: Any) -> Any:
    return x + double(x)


def test_compilation_says_how_many_kernels_are_left() -> None:
    told: list[tuple[int, int, str]] = []
    name = "<lambda>"
    with compilations(lambda *said: told.append(said)) as listener:
        assert outer(1.0) == outer(1.0) == 6.0
    assert told == [(0, 2, name), (0, 2, name), (1, 2, name), (2, 2, "")]
    assert listener.count == 2


def test_kernels_that_others_call_count_as_compiled():
    for kernel in (thrice, double):
        # those of an earlier run are loaded
        kernel._cache.flush()
        _parts[kernel]._cache.flush()
    told = []
    with compilations(lambda *said: told.append(said)):
        assert thrice(1.0) == 3.0
    assert told == [(0, 2, "thrice"), (0, 2, "double"), (1, 2, "thrice"), (2, 2, "")]


def test_a_changed_helper_in_another_folder_is_compiled_again(tmp_path: Path) -> None:
    """Its code is part of the compiled kernels that call it, and so is a constant."""
    for name in ("helpers", "agents"):
        (tmp_path / name).mkdir()
    helper = tmp_path / "helpers" / "numbers.py"
    (tmp_path / "agents" / "caller.py").write_text(
        "from dpb_gym.kernels.deferred import jit\n"
        "from helpers.numbers import FACTOR, inner\n"
        "@jit\ndef middle(x):\n    return inner(x)\n"
        "@jit\ndef outer(x):\n    return FACTOR * middle(x)\n"
    )
    code = (
        "from agents.caller import outer\n"
        "print(outer(1.0), sum(outer.compiled.stats.cache_hits.values()))\nprint([])\n"
    )

    def result(text: str) -> str:
        helper.write_text(f"from dpb_gym.kernels.deferred import jit\n{text}\n")
        path = os.pathsep.join([str(tmp_path), str(Path(dpb_gym.__file__).parents[1])])
        # byte code of the same second and size would count as that of the new text
        variables = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        variables["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
        return finish(start(tmp_path, code, **variables))[0]

    inner = "@jit\ndef inner(x):\n    return x + {}\n"
    assert result(inner.format(1.0) + "FACTOR = 2.0") == "4.0 0"
    assert result(inner.format(1.0) + "FACTOR = 2.0") == "4.0 1"
    assert result(inner.format(2.0) + "FACTOR = 2.0") == "6.0 0"
    assert result(inner.format(2.0) + "FACTOR = 3.0") == "9.0 0"
