"""Every command with hostile values for all its options: one line, never a traceback.

The commands, arguments and options are read from the program itself, so a new one is tried
without being listed here. Everything runs but the rounds: what is valid stops there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from dpb_gym import cli
from dpb_gym.cli.app import app
from dpb_gym.errors import ParameterError

# The files that the fixture makes, and things that are not there or not what they seem.
PATHS = ["here", "broken", "file.txt", "suite.yaml", "bad.yaml", "missing/deep", "", ".", "\0"]
NUMBERS = ["0", "1", "-1", "2", "nan", "inf", "1e9", "1e400", "0x10", "1_0", "٣", "9" * 40, "x"]
NAMES = [
    "random", "adaprivate-ts", "one-pass-mnl", "nobody", "smoke", "dpb-bench-v1",
    "DPB/Pricing-v0", "DPB/Nothing-v0", "CartPole-v1", "envs", "agents", "private-pricing/fig3",
    "adaprivate-ts/table1", "jester-1", "loky", "dask", "rho=1", "epsilon=1,delta=1e-5", "rho=",
    "random,,", "dim=3", "dim", "=", "a.b=1", "a=[", "a={}", "horizon=-1", "random.price=2",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(NAMES), st.sampled_from(NUMBERS), st.sampled_from(PATHS), st.text(max_size=5)
)


def commands() -> dict[str, Any]:
    leaves: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))
        if words and not getattr(command, "commands", {}):
            leaves[" ".join(words)] = command

    walk(get_command(app), ())
    # It downloads; what it refuses is tested beside the data sets.
    del leaves["data fetch"]
    return leaves


COMMANDS = commands()
TRIES = int(os.environ.get("DPB_TRIES", 80)) or 5000


@st.composite
def lines(draw: Any) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    words = name.split()
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "argument":
            count = draw(
                st.integers(0 if draw(st.booleans()) else 1, 2 if parameter.nargs < 0 else 1)
            )
            words += draw(st.lists(VALUES, min_size=count, max_size=count))
        elif "--help" in parameter.opts or draw(st.integers(0, 3)) != 0:
            continue
        elif parameter.is_flag:
            words.append(parameter.opts[-1])
        else:
            words += [parameter.opts[-1], draw(VALUES)]
    return words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPB_DATA", str(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    (tmp_path / "file.txt").write_text("not a result")
    (tmp_path / "bad.yaml").write_text("name: [")
    (tmp_path / "suite.yaml").write_text(
        "name: tiny-v0\ntitle: Tiny\nreplicates: 2\nblock: 2\ncheckpoints: 2\n"
        "tasks: [{name: prices, env: DPB/Pricing-v0, horizon: 10}]\nagents: [random]\n"
    )

    def stop(*_: Any, **__: Any) -> Any:
        raise ParameterError("not run")

    from dpb_gym.audits import agent_audit
    from dpb_gym.running import execution, warming

    for module, name in (
        (execution, "execute"),
        (agent_audit, "play"),
        (warming, "compile_agent"),
        (warming, "in_processes"),
    ):
        monkeypatch.setattr(module, name, stop)
    return tmp_path


def test_all_options_are_fuzzed() -> None:
    options = {o for command in COMMANDS.values() for p in command.params for o in p.opts}
    assert {"list", "run", "verify", "reproduce", "audit", "data path"} <= set(COMMANDS)
    assert {"--budget", "--workers", "--html", "--json", "--set"} <= options


@pytest.mark.slow
@settings(
    max_examples=TRIES,
    derandomize=not os.environ.get("DPB_TRIES"),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=lines())
def test_no_options_give_a_traceback(words: list[str], folder: Path, capfd: Any) -> None:
    status = cli.run(words)
    _, err = capfd.readouterr()
    assert status in (0, 1, 2), (words, err)
    assert "Traceback" not in err and "error: unexpected" not in err, (words, err)
    if status == 2:
        assert err.splitlines()[-1].startswith("dpb: error: "), (words, err)
