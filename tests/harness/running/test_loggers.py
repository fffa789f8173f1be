"""Files of the loggers, read back by the real packages without a network."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import cli
from dpb_gym.errors import MissingExtraError, ParameterError, UnknownNameError
from dpb_gym.running.callbacks import MLflow, TensorBoard, WandB, logger

pytestmark = pytest.mark.loggers
ROUNDS = [5, 20, 40]
AGENTS = {"LinUCB": "lin-ucb", "private": ("adaprivate-ts", "rho=0.5", {"batch": 10})}


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: Any) -> Iterator[None]:
    wandb = pytest.importorskip("wandb", reason="needs the extra [loggers]")
    pytest.importorskip("mlflow", reason="needs the extra [loggers]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    yield
    wandb.teardown()  # it reads the environment once


def evaluate(told: Any) -> dpb_gym.Result:
    return dpb_gym.evaluate(
        "DPB/Recommendation-v0", AGENTS, 40, 4, checkpoints=ROUNDS, progress=False,
        env_kwargs={"dim": 3, "n_arms": 12}, callbacks=[told],
    )  # fmt: skip


def curve(result: dpb_gym.Result, agent: str, what: str) -> Any:
    rows = [r for r in result.records() if r["agent"] == agent]
    means = [np.mean([r[what] for r in rows if r["round"] == t]) for t in ROUNDS]
    return pytest.approx(means, rel=1e-6)


@pytest.mark.slow
def test_tensorboard_reads_checkpoints(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = evaluate(TensorBoard(str(tmp_path)))
    run = tmp_path / "recommendation" / "private rho=0.5" / "seeds 0-3"
    events = EventAccumulator(str(run), size_guidance={"tensors": 0})
    events.Reload()
    assert sorted(events.Tags()["tensors"]) == ["regret", "reward", "spent"]
    points = events.Tensors("regret")
    assert [p.step for p in points] == ROUNDS
    values = [p.tensor_proto.float_val[0] for p in points]
    assert values == curve(result, "private", "regret")


def stored(path: Path) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, after a header of seven bytes."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@pytest.mark.slow
def test_wandb_stores_checkpoints_offline(tmp_path: Path) -> None:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    result = evaluate(WandB("tests"))
    assert wandb.run is None
    wandb.teardown()  # when its process is gone, all is written
    (kept,) = tmp_path.rglob("*.wandb")
    records = [Record.FromString(text) for text in stored(kept)]
    assert {r.run.project for r in records if r.WhichOneof("record_type") == "run"} == {"tests"}
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in r.history.item}
        for r in records
        if r.WhichOneof("record_type") == "history"
    ]
    assert len(rows) == 6
    for agent, name in (("private", "private rho=0.5"), ("LinUCB", "LinUCB")):
        for what in ("regret", "reward"):
            key = f"recommendation/{name}/seeds 0-3/{what}"
            mine = [row for row in rows if key in row]
            assert [row["round"] for row in mine] == ROUNDS
            assert [row[key] for row in mine] == curve(result, agent, what)
    spent = [v for row in rows for key, v in row.items() if key.endswith("/spent")]
    assert spent == pytest.approx([0.5] * 3)
    assert any(r.WhichOneof("record_type") == "exit" for r in records)


@pytest.mark.slow
def test_mlflow_stores_checkpoints(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "store").as_uri()
    result = evaluate(MLflow(place))
    again = MLflow(place)  # an experiment that is there is taken
    (experiment,) = [e for e in again.client.search_experiments() if e.name == "dpb-gym"]
    runs = again.client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    named = {run.data.tags["mlflow.runName"]: run.info.run_id for run in runs}
    base = "recommendation/{}/seeds 0-3"
    assert named.keys() == {base.format("LinUCB"), base.format("private rho=0.5")}
    for agent, name in (("private", "private rho=0.5"), ("LinUCB", "LinUCB")):
        for what in ("regret", "reward"):
            history = again.client.get_metric_history(named[base.format(name)], what)
            assert [m.step for m in history] == ROUNDS
            assert [m.value for m in history] == curve(result, agent, what)
    spent = again.client.get_metric_history(named[base.format("private rho=0.5")], "spent")
    assert [m.value for m in spent] == pytest.approx([0.5] * 3)
    assert not again.client.get_metric_history(named[base.format("LinUCB")], "spent")


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_loggers_of_the_command_line(name: str, tmp_path: Path, capsys: Any) -> None:
    place, kept = {
        "tensorboard": (str(tmp_path / "runs"), "runs/**/events.out.*"),
        "wandb": ("tests", "wandb/**/*.wandb"),
        "mlflow": ((tmp_path / "store").as_uri(), "store/**/metrics/regret"),
    }[name]
    words = ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon", "20", "--quiet"]
    words += ["--replicates", "2", "--workers", "1", "--out", str(tmp_path / "out"), "--json"]
    assert cli.run([*words, "--log", f"{name}={place}"]) == 0
    assert json.loads(capsys.readouterr().out)["computed"] == 1
    assert list(tmp_path.glob(kept))


def test_missing_loggers_are_named(monkeypatch: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        logger("tensorbord=x")
    with pytest.raises(ParameterError, match="wandb=PLACE"):
        logger("wandb")
    with pytest.raises(ParameterError, match=r"mlflow cannot log to 'no://where': \w+Exception: "):
        logger("mlflow=no://where")
    for name, extra in (("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "log")):
        monkeypatch.setattr("dpb_gym.errors.import_module", missing)
        with pytest.raises(MissingExtraError, match=rf"pip install 'dpb-gym\[{extra}\]'"):
            logger(f"{name}=x")


def missing(name: str) -> Any:
    raise ImportError(name)
