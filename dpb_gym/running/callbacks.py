"""Callbacks, called at every checkpoint of every agent, and three loggers as callbacks.

A callback is any function of a `Checkpoint`; it may have a method `close`. It is called in the
main process: immediately for agents that run there, and for jobs of other processes when they
finish. A callback that raises is removed with a warning; results are not affected.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from dpb_gym.errors import DPBError, ParameterError, optional_module, unknown_name
from dpb_gym.privacy import Guarantee
from dpb_gym.problems.base import Array
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.suites.spec import Cell


@dataclass(frozen=True)
class Checkpoint:
    """State of one agent in one block of replicates at one round.

    Attributes:
        task: Name of the task.
        agent: Label.
        budget: Its text, ``"none"`` without one.
        seeds: Seeds of the replicates.
        round: Rounds played, 1 to T.
        regret: Cumulative pseudo-regret ``(B,)``.
        reward: Cumulative realised reward ``(B,)``.
        spent: Charged so far by the ledger, in the budget's rho or epsilon; None without a
            budget. A plan is charged as a whole when it is made.
    """

    task: str
    agent: str
    budget: str
    seeds: tuple[int, ...]
    round: int
    regret: Array
    reward: Array
    spent: float | None

    @classmethod
    def of(
        cls, cell: Cell, at: int, regret: Array, reward: Array, guarantee: Guarantee | None
    ) -> Checkpoint:
        """Return the checkpoint of a cell at round `at`."""
        task, agent, budget = cell.row
        spent = None
        asked = cell.agent.budget
        if guarantee is not None and asked is not None:
            spent = guarantee.epsilon(asked.delta or 0.0) if asked.rho is None else guarantee.rho
        return cls(task, agent, budget, tuple(cell.seeds), at, regret.copy(), reward.copy(), spent)

    @property
    def name(self) -> str:
        """Task, agent, budget and seeds in one line."""
        budget = "" if self.budget == "none" else f" {self.budget}"
        return f"{self.task}/{self.agent}{budget}/seeds {self.seeds[0]}-{self.seeds[-1]}"

    @property
    def metrics(self) -> dict[str, float]:
        """Mean regret and reward of the replicates, and the spent budget."""
        means = {"regret": float(self.regret.mean()), "reward": float(self.reward.mean())}
        return means if self.spent is None else {**means, "spent": self.spent}


Callback: TypeAlias = Callable[[Checkpoint], Any]


class TensorBoard:
    """Logger of scalars for TensorBoard, one run per agent, budget and block (needs ``[log]``).

    Args:
        folder: Log folder; ``tensorboard --logdir FOLDER`` shows it.
    """

    def __init__(self, folder: str = "runs") -> None:
        self._writer = optional_module("tensorboard.summary", "this logger", "log").Writer
        self.folder = folder
        self._open: dict[str, Any] = {}

    def __call__(self, checkpoint: Checkpoint) -> None:
        name = checkpoint.name
        if name not in self._open:
            self._open[name] = self._writer(f"{self.folder}/{name}")
        for key, value in checkpoint.metrics.items():
            self._open[name].add_scalar(key, value, checkpoint.round)

    def close(self) -> None:
        """Close every run."""
        for writer in self._open.values():
            writer.close()


class WandB:
    """Logger to one run of Weights & Biases, with the round as the axis (needs ``[wandb]``).

    Args:
        project: Name of the project.
        **options: Other arguments of ``wandb.init``, e.g. ``mode="offline"``.
    """

    def __init__(self, project: str = "dpb-gym", **options: Any) -> None:
        wandb = optional_module("wandb", "this logger", "wandb")
        self.run = wandb.init(project=project, **options)
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")

    def __call__(self, checkpoint: Checkpoint) -> None:
        named = {f"{checkpoint.name}/{key}": v for key, v in checkpoint.metrics.items()}
        self.run.log({"round": checkpoint.round, **named})

    def close(self) -> None:
        """Finish the run."""
        self.run.finish()


class MLflow:
    """Logger to MLflow, one run per agent, budget and block (needs ``[mlflow]``).

    Args:
        uri: Tracking server or store; MLflow's own by default. Recent versions take a folder as
            store only where ``MLFLOW_ALLOW_FILE_STORE=true`` is set.
        experiment: Name of the experiment, made if there is none.
    """

    def __init__(self, uri: str | None = None, experiment: str = "dpb-gym") -> None:
        mlflow = optional_module("mlflow.tracking", "this logger", "mlflow")
        self.client = mlflow.MlflowClient(uri)
        existing = self.client.get_experiment_by_name(experiment)
        self._id = existing.experiment_id if existing else self.client.create_experiment(experiment)
        self._open: dict[str, str] = {}

    def __call__(self, checkpoint: Checkpoint) -> None:
        name = checkpoint.name
        if name not in self._open:
            made = self.client.create_run(self._id, tags={"mlflow.runName": name})
            self._open[name] = made.info.run_id
        for key, value in checkpoint.metrics.items():
            self.client.log_metric(self._open[name], key, value, step=checkpoint.round)

    def close(self) -> None:
        """End every run."""
        for run in self._open.values():
            self.client.set_terminated(run)


LOGGERS: dict[str, Callable[[str], Any]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def logger(text: str) -> Callback:
    """Return the logger of ``NAME=TARGET``; the target is a folder, project or address.

    Raises:
        UnknownNameError: If there is no logger of this name.
        MissingExtraError: If its package is not installed.
        ParameterError: If the logger rejects the target.
    """
    name, _, place = text.partition("=")
    if name not in LOGGERS:
        raise unknown_name("logger", name, LOGGERS)
    if not place:
        raise ParameterError(f"say where to log to: {name}=PLACE")
    try:
        made: Callback = LOGGERS[name](place)
    except DPBError:
        raise
    except Exception as error:
        what = f"{name} cannot log to {place!r}: {type(error).__name__}: {error}"
        raise ParameterError(what) from error
    return made


@contextmanager
def listening(callbacks: Sequence[Callback]) -> Iterator[Callback]:
    """Yield one callback that calls all of them; close them at the end."""
    left = list(callbacks)

    def guarded(callback: Any, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            left.remove(callback)
            what = f"callback {callback!r} is left out: {type(error).__name__}: {error}"
            warnings.warn(what, RuntimeWarning, stacklevel=4)

    def notify(checkpoint: Checkpoint) -> None:
        for callback in tuple(left):
            guarded(callback, callback, checkpoint)

    try:
        yield notify
    finally:
        for callback in tuple(left):
            guarded(callback, getattr(callback, "close", lambda: None))


def replay(outcomes: Sequence[CellResult | Failure], notify: Callback) -> None:
    """Call a callback with the checkpoints of cells that another process has finished."""
    for outcome in (one for one in outcomes if isinstance(one, CellResult)):
        given = outcome.guarantee
        guarantee = None if given is None else Guarantee.from_dict(given)
        for c, t in enumerate(outcome.cell.checkpoints):
            notify(
                Checkpoint.of(
                    outcome.cell, t, outcome.regret[:, c], outcome.reward[:, c], guarantee
                )
            )
