"""Mutation benchmark of audits: broken agents and mechanisms, and the check that detects each.

    python benchmarks/audit_mutations.py [--write docs/audit.md] [--only TEXT]

Every mutant claims a guarantee that it does not have. Agents sum r x in private batches of eight
rounds on a small recommendation problem (d = 2, 12 arms, 3 candidates), at rho = 0.5. The first
mutants read raw data, the next have wrong records, the next wrong noise, the last are mechanisms.
Mutants that pass are listed with the reason. ``--write`` replaces the table of a page.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import copyreg
import ctypes
import gc
import math
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from marked import put
from objective_audits import audit_objective, curved_choices, hostile_choices

from dpb_agents.assortment.dpmnl import DPMNL
from dpb_agents.recommendation.one_pass_linear import OnePassLinear
from dpb_gym import Budget, SingleAgent
from dpb_gym.agent import Agent
from dpb_gym.audits import (
    AuditReport,
    audit,
    audit_scores,
    audit_sum,
    interference,
)
from dpb_gym.errors import BudgetError, DPBError, FixedError, HorizonExceeded, ParameterError
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.play.player import Player
from dpb_gym.privacy import (
    Composition,
    Curator,
    GaussianEvent,
    Guarantee,
    NoiseSource,
    PSDBall,
    ReleaseModel,
    Schedule,
    Sum,
    objective_plan,
)
from dpb_gym.privacy.releasers.named_sums import LogSum
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

BUDGET = Budget.zcdp(0.5)
SMALL: dict[str, Any] = {
    "env_id": "DPB/Recommendation-v0",
    "env_kwargs": {"dim": 2, "n_arms": 12, "n_candidates": 3},
    "horizon": 32,
}
E1, E2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
RAW, BOUNDS, RESIDUALS, CONTROL, NONE = "raw data", "bounds", "residuals", "control", "none"
DISTANCE, REFUSED = "distance", "curator"


@dataclass(frozen=True)
class Mutant:
    """A broken agent or mechanism.

    Attributes:
        what: What is wrong.
        caught: Check that detects it; `NONE` if it passes.
        run: Function that audits it.
        why: Why it passes, for those that do.
    """

    what: str
    caught: str
    run: Callable[[], AuditReport | DPBError]
    why: str = ""


def check_of(report: AuditReport | DPBError) -> str:
    """Return the check that rejected a claim, `NONE` if it passed."""
    if isinstance(report, DPBError):
        return REFUSED
    if report.distance:
        return DISTANCE
    if report.interference:
        return RAW
    if report.residuals:
        return RESIDUALS
    if report.violations:
        return BOUNDS
    return NONE if report.verdict == "PASS" else CONTROL


Measured = list[tuple[Mutant, AuditReport | DPBError, float]]

# ------------------------------------------------------------------ agents that read raw data


class Honest(SingleAgent):
    """Greedy on noisy sums of r x over batches of eight rounds, without an error."""

    protects = ("central", "reward")
    every = 8

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(self.problem.dim, reward=(0.0, 1.0))
        self.theta = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        theta = self.theta
        if self.peeks(context.t):
            theta = theta + 1e6 * self.peek() * np.array([1.0, -1.0])
        return int((context.features @ theta).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if context.t % self.every == 0:
            self.theta = self.theta + self.sums.release()

    def peeks(self, t: int) -> bool:
        return False

    def peek(self) -> float:
        """Return a number that depends on raw rewards."""
        total = behind(self.sums)._total
        return float(np.sin(1e3 * total).sum())


class HonestRunning(Honest):
    """Greedy on a running sum, without an error."""

    def begin(self) -> None:
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    def act(self, context: Any) -> int:
        return int((context.features @ self.sums.value).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])


class ByAttribute(Honest):
    def peeks(self, t: int) -> bool:
        return True


class ByFrame(ByAttribute):
    def peek(self) -> float:
        frame = sys._getframe(1)
        while frame is not None:
            if "delivered" in frame.f_locals:
                return float(np.ravel(frame.f_locals["delivered"][2].reward)[0])
            frame = frame.f_back  # type: ignore[assignment]
        return 0.0


class ByCollector(Agent):
    """An honest agent of batches, but for what it finds in memory every eighth round."""

    protects = ("central", "reward")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0))
        self.theta = np.zeros((streams.replicates, problem.dim))

    def act(self, context: Any) -> Any:
        if context.t % 8 == 5:
            sums = [o for o in gc.get_objects() if isinstance(o, Sum)]
            # its own, not one of another agent of this process
            raw = [o._total for o in sums if o.rounds and o._total.shape == self.theta.shape]
            self.theta = self.theta + np.sin(1e3 * raw[-1])
        return (context.features * self.theta[:, None]).sum(axis=2).argmax(axis=1)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[np.arange(len(action)), action])
        if context.t % 8 == 0:
            self.theta = self.theta + self.sums.release()


class ByClosure(ByAttribute):
    def begin(self) -> None:
        super().begin()
        rewards: list[float] = []

        def told(reward: float) -> float:
            rewards.append(float(reward))
            return reward

        self.told = told

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback._replace(reward=self.told(feedback.reward)))

    def peek(self) -> float:
        rewards = self.told.__closure__[0].cell_contents  # type: ignore[index]
        return float(sum(rewards) % 2)


class ByPickle(ByAttribute):
    """Takes the sum from what pickle would store of its handle."""

    def peek(self) -> float:
        handle = self.sums
        (sums,) = copyreg.dispatch_table[type(handle)](handle)[1]
        return float(np.sin(1e3 * sums._total).sum())


class ByReferents(ByAttribute):
    """Takes the sum from the objects that the handle refers to."""

    def peek(self) -> float:
        (sums,) = (o for o in gc.get_referents(self.sums) if isinstance(o, Sum))
        return float(np.sin(1e3 * sums._total).sum())


class ByAddress(ByAttribute):
    """Takes the sum from the memory of the handle."""

    def peek(self) -> float:
        place = id(self.sums) + object.__basicsize__
        sums = ctypes.py_object.from_address(place).value
        return float(np.sin(1e3 * sums._total).sum())


class ByProfiler(ByAttribute):
    """Takes the record from the frame of the releaser's `add`, which a profiler sees."""

    record = 0.0

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        sys.setprofile(self.seen)
        try:
            super().observe(context, action, feedback)
        finally:
            sys.setprofile(None)

    def seen(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is Sum._add.__code__:
            self.record = float(np.ravel(frame.f_locals["records"])[0])

    def peek(self) -> float:
        return self.record - 0.5


class ByClass(ByAttribute):
    """Replaces a method of the releaser's class by one that stores the newest record."""

    usual = staticmethod(Sum._add)
    record = 0.5

    def begin(self) -> None:
        super().begin()
        Sum._add = ByClass.stored  # type: ignore[method-assign]

    @staticmethod
    def stored(sums: Sum, records: Any, along: Any) -> None:
        ByClass.record = float(np.ravel(records)[0])
        ByClass.usual(sums, records, along)

    def peek(self) -> float:
        return ByClass.record - 0.5


class ByClock(ByAttribute):
    """Waits after a large reward, and acts by the time that has passed."""

    start = 0.0

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.start = time.perf_counter()
        if context.t % self.every == 1 and feedback.reward > 0.5:
            time.sleep(0.002)

    def peek(self) -> float:
        return float(time.perf_counter() - self.start > 0.001) - 0.5


class Telling(Sum):
    """A releaser whose public name holds the newest record."""

    def _add(self, records: Any, along: Any) -> None:
        super()._add(records, along)
        self.what = str(float(np.ravel(records)[0]))


class ByOwnReleaser(ByAttribute):
    def begin(self) -> None:
        super().begin()
        self.more = Telling(self.curator, self.problem.dim, reward=(0.0, 1.0))

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.more.add(np.array([feedback.reward]), context.features[[action]])

    def peek(self) -> float:
        return float(self.more.what) - 0.5 if self.more.rounds else 0.0


class ByCopy(Honest):
    """Averages releases of copies of the releaser, whose system noise would be another."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if context.t % self.every == 0:
            copies = [self.copied() for _ in range(3)]
            releases = [self.sums.release()]
            with contextlib.suppress(ParameterError, AttributeError):  # where an audit looks on
                releases += [one.release() for one in copies]
            self.theta = self.theta + np.mean(releases, axis=0)

    def copied(self) -> Any:
        return copy.deepcopy(self.sums)


class ByPickledCopy(ByCopy):
    def copied(self) -> Any:
        with contextlib.suppress(AttributeError, pickle.PicklingError):
            return pickle.loads(pickle.dumps(self.sums))


class OnceInAThousand(Honest):
    def peeks(self, t: int) -> bool:
        return t % 1000 == 999


class AtRandom(Honest):
    def peeks(self, t: int) -> bool:
        return bool(self.rng.random() < 1e-3)


class AfterRound500(Honest):
    def peeks(self, t: int) -> bool:
        return t > 500


class OfLongRuns(Honest):
    def peeks(self, t: int) -> bool:
        return (self.problem.horizon or 0) >= 4000


class OfLargeRewards(ByAttribute):
    def begin(self) -> None:
        super().begin()
        self.last = 0.0

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.last = float(feedback.reward > 0.9)

    def peek(self) -> float:
        return self.last


class InAClass(ByAttribute):
    """Stores the rewards of all replicates in the class."""

    rewards: ClassVar[list[float]] = []

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.rewards.append(float(feedback.reward))

    def peek(self) -> float:
        return self.rewards[-1] - 0.5 if self.rewards else 0.0


class FirstInAClass(InAClass):
    """Stores the first reward of the process, which is the same in every run."""

    def peek(self) -> float:
        return self.rewards[0] - 0.5 if self.rewards else 0.0


class AdaptiveBatches(Honest):
    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if behind(self.sums)._total.sum() > 2.0:
            self.theta = self.theta + self.sums.release()


class SecondSum(Honest):
    """Also sums the rewards without noise."""

    def begin(self) -> None:
        super().begin()
        self.raw = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        return int((context.features @ (self.theta + self.raw)).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.raw += feedback.reward * context.features[action]


class Denoised(Honest):
    """Draws the noise of its releases from a copy of the curator's source, and subtracts it."""

    def begin(self) -> None:
        super().begin()
        self.noise = copy.deepcopy(self.source()).spawn()

    def source(self) -> NoiseSource:
        return self.curator.noise

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if context.t % self.every == 0:
            noise = self.noise.gaussian(self.sums.sigma, self.problem.dim)[0]
            self.theta = self.theta + self.sums.release() - noise


class FromSeed(Denoised):
    """The same, with the noise that follows from the replicates' seeds."""

    def source(self) -> NoiseSource:
        frame = sys._getframe(1)
        while "streams" not in frame.f_locals:
            frame = frame.f_back  # type: ignore[assignment]
        streams, parts = frame.f_locals["streams"], frame.f_locals["curator"].parts
        noise = AgentStreams(streams.seeds, streams.configuration).noise
        return NoiseSource([noise[len(parts) - 1]])


class Again(Honest):
    """Adds the reward of the round before to every other sum, instead of the round's own."""

    last = 0.0

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        reward = feedback.reward if context.t % 2 else self.last
        self.last = feedback.reward
        super().observe(context, action, feedback._replace(reward=reward))


class Propensities(Honest):
    """Logs propensities that depend on raw rewards; its actions do not."""

    last = 0.0

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.last = float(feedback.reward)

    def probabilities(self, context: Any) -> Any:
        return np.array([self.last, 1.0 - self.last, 0.0])


class Stating(Agent):
    """Writes the last reward into its guarantee, which is published."""

    protects = ("central", "reward")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0))
        self.curator = curator

    def act(self, context: Any) -> Any:
        return np.zeros(len(context.features), int)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[:, 0])
        self.sums.release()
        self.curator.provisos = (f"the last reward is {feedback.reward[0]}",)


class Features(Agent):
    """Stores the features of the last customer, which its unit protects."""

    protects = ("joint", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, clip=1.0)
        self.last = np.zeros((streams.replicates, problem.dim))

    def act(self, context: Any) -> Any:
        return (context.features * self.last[:, None]).sum(axis=2).argmax(axis=1)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.last = context.features[:, 0].astype(float)
        self.sums.add(self.last)
        self.sums.release()


class SeenFeatures(Features):
    """The same, but stores them when it acts, not when it observes."""

    def act(self, context: Any) -> Any:
        action = super().act(context)
        self.seen = context.features[:, 0].astype(float)
        return action

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.last = self.seen
        self.sums.add(np.zeros_like(self.last))
        self.sums.release()


class InAFile(ByAttribute):
    """Stores the first reward in a file, where every later run finds it."""

    file = Path(tempfile.gettempdir()) / f"audit-mutation-{os.getpid()}"

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if not self.file.exists():
            self.file.write_text(str(float(feedback.reward)))

    def peek(self) -> float:
        return float(self.file.read_text()) - 0.5 if self.file.exists() else 0.0


class Aware(ByAttribute):
    """Behaves while one of its callers is an audit."""

    def peeks(self, t: int) -> bool:
        frame = sys._getframe(1)
        while frame is not None:
            if "audits" in frame.f_code.co_filename:
                return False
            frame = frame.f_back  # type: ignore[assignment]
        return True


class Blinding(ByAttribute):
    """Replaces the comparison of the audit by one that finds no difference."""

    def begin(self) -> None:
        super().begin()
        interference._hashed = lambda parts: b""
        interference.SLACK = math.inf


class Harmless(ByAttribute):
    """Adds a raw number that is too small to change an action."""

    def peeks(self, t: int) -> bool:
        return t > self.every

    def peek(self) -> float:
        return 1e-18 * super().peek()


class Last(Agent):
    """Release sums as claimed, and choose by something of the customer before."""

    protects = ("joint", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, clip=1.0)
        self.problem, self.last = problem, 0

    def act(self, context: Any) -> Any:
        return np.full(len(context.features), self.last % context.features.shape[1])

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.last = int(self.read(context))
        chosen = context.features[np.arange(len(action)), np.ravel(action.T[0])]
        self.sums.add(chosen * np.asarray(feedback.reward)[:, None])
        if context.t % 8 == 0:
            self.sums.release()

    def read(self, context: Any) -> float:
        return float(context.arms[0].sum())


class LastUser(Last):
    def read(self, context: Any) -> float:
        return float(context.users[0])


class LastRevenue(Last):
    """Offers the slate that the revenues of the customer before select."""

    def act(self, context: Any) -> Any:
        places = np.arange(self.problem.capacity)
        slate = (places + self.last) % self.problem.n_items
        return np.tile(slate, (len(context.features), 1))

    def read(self, context: Any) -> float:
        return float(context.revenues[0].argmax())


class LastAvailable(LastRevenue):
    """The same by the availability; the unavailable items of the slate are left out."""

    def act(self, context: Any) -> Any:
        slates = super().act(context)
        lanes = np.arange(len(slates))[:, None]
        shown = np.where(context.available[lanes, slates], slates, -1)
        first = context.available.argmax(axis=1)
        return np.where((shown >= 0).any(axis=1)[:, None], shown, first[:, None])

    def read(self, context: Any) -> float:
        return float(context.available[0].argmax())


class Neighbour(ByCollector):
    """Acts by the newest reward of the replicate beside."""

    least = 2

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        super().begin(problem, streams, curator)
        self.last = np.zeros(streams.replicates)

    def act(self, context: Any) -> Any:
        if len(self.theta) < self.least:
            return np.zeros(len(self.theta), int)
        return (np.roll(self.last, 1) > 0.5).astype(int)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        super().observe(context, action, feedback)
        self.last = np.array(feedback.reward)


class OfBatches(Neighbour):
    """Acts by its own newest reward, if there is more than one replicate."""

    def act(self, context: Any) -> Any:
        if len(self.theta) < self.least:
            return np.zeros(len(self.theta), int)
        return (self.last > 0.5).astype(int)


class OfLargeBatches(OfBatches):
    least = 64


class NeighbourRecord(Neighbour):
    """Adds the reward of the replicate beside."""

    def act(self, context: Any) -> Any:
        return np.zeros(len(self.theta), int)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        moved = feedback._replace(reward=np.roll(feedback.reward, 1))
        super().observe(context, action, moved)


class InSharedMemory(InAFile):
    """Stores the first reward in memory that other processes of the machine share."""

    file = Path("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())
    file = file / f"audit-mutation-{os.getpid()}-shared"


# ------------------------------------------------------------------ agents with wrong records


class Entering(Honest):
    """Adds the records that `entries` returns of every round, to a sum for many records."""

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(self.problem.dim, reward=(0.0, 1.0), horizon=10**6)
        self.theta = np.zeros(self.problem.dim)

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        for _ in range(self.entries(context.t, feedback.reward)):
            self.sums.add(feedback.reward, along=context.features[action])
        if context.t % self.every == 0:
            self.theta = self.theta + self.sums.release()

    def entries(self, t: int, reward: float) -> int:
        return 10


class TwiceEverySecond(Entering):
    def entries(self, t: int, reward: float) -> int:
        return 1 + t % 2


class TenTimesLate(Entering):
    def entries(self, t: int, reward: float) -> int:
        return 10 if t > 600 else 1


class LargeRewardsOnly(Entering):
    def entries(self, t: int, reward: float) -> int:
        return int(reward > 0.5 or t % self.every == 0)


def uncounted(agent: type[Entering]) -> type[Entering]:
    """Return the agent with a curator that does not count records."""

    class Uncounted(agent):  # type: ignore[misc,valid-type]
        def begin(self) -> None:
            super().begin()
            Curator.admit = lambda *_: None  # type: ignore[method-assign,assignment]

    return Uncounted


class Turned(Honest):
    """Turns a record's direction by its reward, where a random sign hides the reward alone."""

    def begin(self) -> None:
        rounds = self.problem.horizon
        schedule = Schedule.geometric(rounds, 2, 1.5, 0.3)
        # a device sends a binary reward as a random sign
        model = ReleaseModel(rounds, 1.0, 0.25, 0.25, 1.0, binary=True)
        options: dict[str, Any] = {"schedule": schedule, "model": model, "reward": (0.0, 1.0)}
        self.sums = self.curator.weighted_sum(self.problem.dim, **options)

    def act(self, context: Any) -> int:
        return int((context.features @ self.sums.value).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        sign = 1.0 if feedback.reward > 0.5 else -1.0
        self.sums.add(feedback.reward, along=sign * context.features[action])


class BesideTheCount(Entering):
    """Adds nine more copies by a method that is not for agents."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        raw = behind(self.sums)
        for _ in range(9):
            raw._add(np.array([feedback.reward]), context.features[[action]])
        super().observe(context, action, feedback)

    def entries(self, t: int, reward: float) -> int:
        return 1


class Copies(HonestRunning):
    """Adds twenty copies of a record as if they were of twenty rounds."""

    def begin(self) -> None:
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0), horizon=10**4)

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        directions = np.tile(context.features[action], (20, 1, 1))
        self.sums.add_rounds(np.full((20, 1), feedback.reward), directions)


class AllAtOnce(Honest):
    """Keeps the raw records of eight rounds, and adds them together."""

    def begin(self) -> None:
        super().begin()
        self.kept: list[Any] = []

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.kept.append((feedback.reward, context.features[action].copy()))
        if context.t % self.every == 0:
            for reward, features in self.kept:
                self.sums.add(reward, along=features)
            self.kept = []
            self.theta = self.theta + self.sums.release()


class InAct(Honest):
    """Adds the record when it acts in the next round."""

    kept: Any = None

    def act(self, context: Any) -> int:
        if self.kept is not None:
            self.sums.add(self.kept[0], along=self.kept[1])
        return super().act(context)

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.kept = feedback.reward, context.features[action].copy()


class OpensRounds(InAct):
    """The same in a round that it opens itself."""

    def act(self, context: Any) -> int:
        with self.curator.round():
            return super().act(context)


class Centre(DPMNL):
    """Sets the centre of the ridge to a function of raw choices."""

    protects = ("joint", "user-round")
    of_handle = True

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        super().begin(problem, streams, curator)
        self.raw = 0.0

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.raw += float(feedback.choice[0])
        self.set(behind(self._releasers.estimator), 50.0 * np.sin(self.raw + np.arange(2)))
        super().observe(context, action, feedback)

    def set(self, estimator: Any, centre: Any) -> None:
        estimator.centre = centre


class HiddenCentre(Centre):
    """The same by an attribute that is not for agents."""

    def set(self, estimator: Any, centre: Any) -> None:
        estimator._centre = centre


class InPlace(Centre):
    """The same, by a change of the array in place."""

    def set(self, estimator: Any, centre: Any) -> None:
        estimator._centre[:] = centre


class Loss(SingleAgent):
    """Releases minimisers of squared errors four times."""

    protects = ("joint", "user-round")

    def begin(self) -> None:
        self.theta, self.raw = np.zeros((2, self.problem.dim))
        self.fit = self.curator.minimiser(
            self.problem.dim, loss=self.loss(), gradient_bound=4.0, curvature=1.0, calls=4,
            records=self.problem.horizon,
        )  # fmt: skip

    def loss(self) -> Any:
        def squares(theta: Any, x: Any, r: Any) -> Any:
            e = x @ theta - r
            return 0.5 * float(e @ e), x.T @ e, x.T @ x

        return squares

    def act(self, context: Any) -> int:
        return int((context.features @ self.theta).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        x = context.features[action] / max(1.0, float(np.linalg.norm(context.features[action])))
        self.raw = self.raw + feedback.reward * x
        self.fit.add(x, self.number(context.t, feedback.reward))
        if context.t in (8, 16, 24, 32):
            self.theta = np.clip(self.fit.release(), -1.0, 1.0)

    def number(self, t: int, reward: float) -> float:
        return reward


class RawLoss(Loss):
    """Its loss also has a term of raw sums, in the rounds of releases."""

    releasing = False

    def loss(self) -> Any:
        squares = super().loss()

        def leaking(theta: Any, x: Any, r: Any) -> Any:
            value, gradient, bend = squares(theta, x, r)
            linear = 50.0 * np.sin(self.raw) * self.releasing
            return value + float(linear @ theta), gradient + linear, bend

        return leaking

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.releasing = context.t % 8 == 0
        super().observe(context, action, feedback)


class LateLoss(Loss):
    """Has records of larger gradients than it declares, after round 40."""

    def number(self, t: int, reward: float) -> float:
        return reward * (100.0 if t > 40 else 1.0)


class LateSum(Honest):
    """Also has a sum that is declared for small records, and is first used in round 700."""

    def begin(self) -> None:
        super().begin()
        self.late = self.made()

    def made(self) -> Any:
        return self.curator.batch_sum(self.problem.dim, reward=(0.0, 1.0), sensitivity=1e-6)

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t >= 700:
            self.late.add(feedback.reward, along=context.features[action])
            self.theta = self.theta + self.late.release()


class LateLog(LateSum):
    """The same with a sum whose sensitivity is an argument of library functions."""

    def made(self) -> Any:
        LogSum(self.curator, 2, clip=1.0, sensitivity=1e-6)
        return self.curator.releasers[-1]


class Lying(Sum):
    """A releaser that says that it enforces a sensitivity which its caller chooses."""

    enforces = True


class LateLie(LateSum):
    def made(self) -> Any:
        Lying(self.curator, 2, reward=(0.0, 1.0), sensitivity=1e-6)
        return self.curator.releasers[-1]


class Named(Honest):
    """Sets the name of its sum to the newest record."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        behind(self.sums).what = str(feedback.reward)


class LatePlayer(Player):
    """Divides the noise of all later releases by 100, after round 40."""

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        if context.t == 40:
            sums = behind(self.plan.sums)
            sums.schedule.scales[sums.releases :] *= 100.0
        super().observe(context, action, feedback)


class Schedules(OnePassLinear):
    """Has a player of its own, because functions of an algorithm get no releaser."""

    protects = ("central", "reward")
    player = LatePlayer


class SchedulesAtTheStart(OnePassLinear):
    """Divides the noise of all releases after round 40 by 100, before the first round."""

    protects = ("central", "reward")

    def start(self, problem: Any, sums: Any) -> Any:
        first = super().start(problem, sums)
        late = sums.schedule.ends > 40
        behind(sums).schedule.scales[late] *= 100.0
        return first


# ------------------------------------------------------------------ agents with wrong noise


class Scaled(Honest):
    """Adds noise of a fraction of the charged variance."""

    variance = 0.5

    def begin(self) -> None:
        super().begin()
        self.curator.seal()
        behind(self.sums)._sigma *= math.sqrt(self.variance)


class LittleNoise(Scaled):
    variance = 0.1


def with_noise(change: Callable[[Any, int], Any]) -> type[Honest]:
    """Return an agent whose noise source is changed in every release, given its number."""

    class Changed(Honest):
        def begin(self) -> None:
            super().begin()
            self.curator.seal()
            raw = behind(self.sums)
            source, drawn = raw._noise, []

            def gaussian(std: float, width: int) -> Any:
                drawn.append(source.__class__.gaussian(source, std, width))
                return change(drawn, len(drawn) - 1)

            source.gaussian = gaussian

    return Changed


FirstOnly = with_noise(lambda drawn, i: drawn[i] * (i == 0))
OneVector = with_noise(lambda drawn, i: drawn[0])
Late = with_noise(lambda drawn, i: drawn[i] * (1.0 if i < 500 / Honest.every else 0.3))
FixedSeed = with_noise(lambda drawn, i: np.random.default_rng(i).normal(size=drawn[i].shape))


def uniform(drawn: Any, i: int) -> Any:
    """Return uniform noise of the variance of normal noise, from a seed that the noise gives."""
    rng = np.random.default_rng(abs(int(1e9 * drawn[i].flat[0])))
    return math.sqrt(3.0) * rng.uniform(-1.0, 1.0, drawn[i].shape)


Uniform = with_noise(uniform)


class Common(Honest):
    """Two sums with one noise vector, which their difference cancels."""

    def begin(self) -> None:
        super().begin()
        self.more = self.curator.batch_sum(self.problem.dim, reward=(0.0, 1.0))
        self.curator.seal()
        one, other = behind(self.sums)._noise, behind(self.more)._noise
        drawn: list[Any] = []

        def first(std: float, width: int) -> Any:
            drawn.append(one.__class__.gaussian(one, std, width))
            return drawn[-1]

        one.gaussian, other.gaussian = first, lambda std, width: drawn[-1]

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.more.add(1.0 - feedback.reward, along=context.features[action])
        super().observe(context, action, feedback)
        if context.t % self.every == 0:
            self.theta = self.theta - self.more.release()


class OtherMatrix(HonestRunning):
    """The noise is correlated by another matrix than the charged one."""

    def begin(self) -> None:
        super().begin()
        self.curator.seal()
        mechanism = behind(self.sums)._mechanism
        mechanism.theta = 0.5 * mechanism.theta


class Ridge(DPMNL):
    """DPMNL whose private estimates have a hundredth of the charged ridge."""

    protects = ("joint", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        super().begin(problem, streams, curator)
        curator.seal()
        fit = behind(self._releasers.estimator)
        fit._plan = replace(fit._plan, ridge=0.01 * fit._plan.ridge)


class Declares(Honest):
    """Charges the ledger, but has no releaser that an audit could observe."""

    def begin(self) -> None:
        self.curator.charge(GaussianEvent(1.0, 1.0), what="something")
        self.theta = np.zeros(self.problem.dim)

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        pass


class Own(Agent):
    """Its own action depends on the customer, which a central claim protects."""

    protects = ("central", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        curator.charge(GaussianEvent(10.0), what="nothing")

    def act(self, context: Any) -> Any:
        return context.features[:, :, 0].argmax(axis=1)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        pass


class Messages(LocalPrivacy):
    """Sends the response itself in every fourth round."""

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        super().begin(problem, streams, curator)
        numbers, count = self.responses.numbers, [0]
        draw = numbers.next

        def drawn() -> Any:
            count[0] += 1
            return np.full_like(draw(), 0.0) if count[0] % 4 == 0 else draw()

        numbers.next = drawn  # type: ignore[method-assign]


class Chatty(LocalPrivacy):
    """Sends the message of a round ten times, and uses their mean."""

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        sent = [self.responses.send(context, action, feedback)[1] for _ in range(10)]
        self.inner.observe(context, action, feedback._replace(reward=np.mean(sent, axis=0)))


# ------------------------------------------------------------------ mechanisms


def claim(rho: float) -> Guarantee:
    event = GaussianEvent(math.sqrt(0.5 / rho))
    return Guarantee("joint", "user-round", curve=Composition.of(event))


def total(first: Any, second: Any, rounds: int = 1, **shape: Any) -> AuditReport:
    def make(curator: Any) -> Any:
        kind = curator.running_sum if rounds > 1 else curator.batch_sum
        return kind(**shape)

    return audit_sum(make, first, second, BUDGET, rounds=rounds)


def grams(sensitivity: float, rounds: int = 1) -> AuditReport:
    """Sums of Gram matrices of four items with too small a sensitivity (errata A1 and P1)."""
    pair = 4 * np.outer(E1, E1), 4 * np.outer(E2, E2)
    tree = {"mechanism": "binary-tree"} if rounds > 1 else {}
    return total(
        *pair, rounds, symmetric=2, clip=PSDBall(4.0), sensitivity=sensitivity, **tree
    )  # fmt: skip


def objective(worlds: Any, ridge: float = 1.0, sigma: float = 1.0) -> AuditReport:
    plan = objective_plan(0.5, dim=2, gradient_bound=2.0, curvature=1.0, records=200_001)
    claimed = Guarantee("joint", "user-round", curve=Composition.of(plan.event))
    changed = replace(plan, ridge=ridge * plan.ridge, sigma=sigma * plan.sigma)
    return audit_objective(changed, worlds(), claimed=claimed)


def user_in_three_batches() -> AuditReport:
    """A user in three batches, charged for one (erratum R10)."""
    scores = []
    for world in (0, 1):
        noise = NoiseSource.from_seed([1, world], 2000).normal(3)
        scores.append((2.0 * noise + (2 * world - 1)).sum(axis=1))
    return audit_scores(scores[0], scores[1], claim(0.5))


# ------------------------------------------------------------------ the benchmark


def of(agent: Any, runs: int = 60, **how: Any) -> Callable[[], AuditReport | DPBError]:
    def run() -> AuditReport | DPBError:
        usual, admit = Sum._add, Curator.admit
        digest, slack = interference._digest, interference.SLACK
        try:
            return audit(agent, runs=runs, **{"budget": BUDGET, **SMALL, **how})
        except DPBError as error:
            refused = error.__cause__ or error
            if not isinstance(refused, (BudgetError, FixedError, HorizonExceeded)):
                raise
            return refused
        finally:  # what a mutant replaces
            Sum._add, interference._digest = usual, digest  # type: ignore[method-assign]
            interference.SLACK = slack
            Curator.admit = admit  # type: ignore[method-assign]

    return run


SLATES: dict[str, Any] = {
    "env_id": "DPB/Assortment-v0",
    "env_kwargs": {"n_items": 8, "capacity": 4, "dim": 2, "context_norm": "clip"},
    "params": {"explore": 8, "max_updates": 1, "share": 0.9},
}
OFFERS: dict[str, Any] = {
    "env_id": "DPB/Assortment-v0",
    "env_kwargs": {
        "n_items": 8, "capacity": 4, "dim": 2, "context_norm": "clip", "revenues": "random",
    },
}  # fmt: skip
SOME: dict[str, Any] = {
    "env_id": "DPB/Assortment-v0", "env_kwargs": {**OFFERS["env_kwargs"], "available": 0.5},
}  # fmt: skip
LATE: dict[str, Any] = {"deployment": 720}
MUTANTS = (
    Mutant("raw sum of a releaser, read in every round", RAW, of(ByAttribute)),
    Mutant("raw response in a frame of the caller", RAW, of(ByFrame)),
    Mutant("raw sum, found by the garbage collector", RAW, of(ByCollector)),
    Mutant("raw sum, from what pickle stores", RAW, of(ByPickle)),
    Mutant("raw sum, among the referents of the handle", RAW, of(ByReferents)),
    Mutant("raw sum, at the memory address of the handle", RAW, of(ByAddress)),
    Mutant("raw record, seen by a profiler", RAW, of(ByProfiler)),
    Mutant("raw records, stored by a changed class of releasers", RAW, of(ByClass)),
    Mutant("raw record, in the public name of a releaser of its own", RAW, of(ByOwnReleaser)),
    Mutant("time that depends on the reward", RAW, of(ByClock)),
    Mutant("releases of copies of the releaser, averaged", RAW, of(ByCopy)),
    Mutant("the same, of pickled copies", RAW, of(ByPickledCopy)),
    Mutant("raw rewards in a closure", RAW, of(ByClosure)),
    Mutant("raw sum, read once in 1,000 rounds", RAW, of(OnceInAThousand, deployment=2100)),
    Mutant("raw sum, read with probability 1/1,000", RAW, of(AtRandom, deployment=3000)),
    Mutant("raw sum, read after round 500", RAW, of(AfterRound500, deployment=600)),
    Mutant("raw sum, read if the horizon is 4,000 or more", RAW, of(OfLongRuns, deployment=4000)),
    Mutant("last reward, read if it is larger than 0.9", RAW, of(OfLargeRewards)),
    Mutant("last reward, stored in the class", RAW, of(InAClass)),
    Mutant("batches end when the raw sum is large", RAW, of(AdaptiveBatches)),
    Mutant("noise of the curator's source, subtracted from the releases", RAW, of(Denoised)),
    Mutant("noise of the replicate's seed, subtracted from the releases", RAW, of(FromSeed)),
    Mutant("rewards also summed without noise", RAW, of(SecondSum)),
    Mutant("a reward enters the sum of another round", RAW, of(Again)),
    Mutant("propensities depend on raw rewards", RAW, of(Propensities)),
    Mutant("a reward in the text of the guarantee", RAW, of(Stating)),
    Mutant("features of the last customer are stored, unit user-round", RAW, of(Features)),
    Mutant("the same, stored by `act`", RAW, of(SeenFeatures)),
    Mutant("candidates of the last customer, unit user-round", RAW, of(Last)),
    Mutant(
        "number of the last customer, unit user-round", RAW,
        of(LastUser, env_kwargs={**SMALL["env_kwargs"], "interactions_per_user": 8}),
    ),
    Mutant("revenues of the last customer, unit user-round", RAW, of(LastRevenue, **OFFERS)),
    Mutant("availability of the last customer, unit user-round", RAW, of(LastAvailable, **SOME)),
    Mutant("raw reward of the replicate beside", RAW, of(Neighbour)),
    Mutant("raw rewards if there is more than one replicate", RAW, of(OfBatches)),
    Mutant("the record is that of the replicate beside", RAW, of(NeighbourRecord)),
    Mutant("records of large rewards only", RAW, of(LargeRewardsOnly)),
    Mutant("each record enters ten times", REFUSED, of(Entering)),
    Mutant("a record enters twice in every second round", REFUSED, of(TwiceEverySecond)),
    Mutant("twenty copies of a record by `add_rounds`", REFUSED, of(Copies)),
    Mutant("each record enters ten times after round 600", REFUSED, of(TenTimesLate, **LATE)),
    Mutant("ten times, and a curator that does not count", BOUNDS, of(uncounted(Entering), 200)),
    Mutant(
        "ten times after round 600, and a curator that does not count", DISTANCE,
        of(uncounted(TenTimesLate), 200, **LATE),
    ),
    Mutant("ten times, by a method that is not counted", RESIDUALS, of(BesideTheCount)),
    Mutant("raw records of eight rounds are kept and added at once", REFUSED, of(AllAtOnce)),
    Mutant("a record enters when the next action is chosen", REFUSED, of(InAct)),
    Mutant("the same, in a round that the agent opens", REFUSED, of(OpensRounds)),
    Mutant("a local message is sent ten times", REFUSED, of(lambda: Chatty("lin-ucb"))),
    Mutant("raw choices as the centre of a ridge", REFUSED, of(Centre, 200, **SLATES)),
    Mutant("the same, by a hidden attribute", RAW, of(HiddenCentre, 200, **SLATES)),
    Mutant("the same, in place", RAW, of(InPlace, 200, **SLATES)),
    Mutant("a raw reward as the name of a releaser", RAW, of(Named)),
    Mutant("raw sums in a loss that is minimised", RAW, of(RawLoss, 200)),
    Mutant(
        "the direction of a sign follows the reward", DISTANCE,
        of(Turned, 200, budget=Budget.parse("rho=0.5@local")),
    ),
    Mutant("larger gradients than declared, after round 40", DISTANCE, of(LateLoss, **LATE)),
    Mutant("too small a sensitivity, used from round 700 on", DISTANCE, of(LateSum, **LATE)),
    Mutant("the same, of a sum of a whole log", REFUSED, of(LateLog, **LATE)),
    Mutant("the same, of another package's releaser", DISTANCE, of(LateLie, **LATE)),
    Mutant("the action depends on the customer, claim central", BOUNDS, of(Own, 200)),
    Mutant("half of the noise variance", RESIDUALS, of(Scaled, 200)),
    Mutant("a tenth of the noise variance", RESIDUALS, of(LittleNoise, 200)),
    Mutant("noise in the first batch only", RESIDUALS, of(FirstOnly)),
    Mutant("one noise vector for all batches", RESIDUALS, of(OneVector)),
    Mutant("a third of the noise after round 500", RESIDUALS, of(Late, deployment=2000)),
    Mutant(
        "a hundredth of the noise after round 40, by the schedule", RESIDUALS,
        of(Schedules, 200, deployment=200),
    ),
    Mutant(
        "the same, planned before the first round", RESIDUALS,
        of(SchedulesAtTheStart, 200, deployment=200),
    ),
    Mutant("noise of a fixed seed, the same in every run", RESIDUALS, of(FixedSeed)),
    Mutant("uniform noise of the charged variance", RESIDUALS, of(Uniform, 200)),
    Mutant("two releasers with the same noise", RESIDUALS, of(Common)),
    Mutant("BLT noise of another matrix", RESIDUALS, of(OtherMatrix, 200)),
    Mutant("a hundredth of the ridge, in an agent", RESIDUALS, of(Ridge, 200, **SLATES)),
    Mutant("charges the ledger without a releaser", CONTROL, of(Declares)),
    Mutant(
        "every fourth local message without noise", RESIDUALS,
        of(lambda: Messages("lin-ucb"), 200),
    ),
    Mutant(
        "a hundredth of the ridge", BOUNDS, lambda: objective(curved_choices, ridge=0.01)
    ),
    Mutant("half of the noise (P2)", BOUNDS, lambda: objective(hostile_choices, sigma=0.5)),
    Mutant("Gram noise for sqrt(2K) (A1)", BOUNDS, lambda: grams(math.sqrt(8.0))),
    Mutant("Gram noise for K (P1), binary tree", BOUNDS, lambda: grams(4.0, 16)),
    Mutant(
        "longer records than the noise is for (A8)", BOUNDS,
        lambda: total(2 * E1, -2 * E1, width=2, clip=2.0, sensitivity=2.0),
    ),
    Mutant("a user in three batches, charged for one (R10)", BOUNDS, user_in_three_batches),
    Mutant(
        "the first reward of the process, stored in the class", NONE, of(FirstInAClass),
        "another run filled it before the test; audit in a new process and isolate the agent",
    ),
    Mutant(
        "the first reward, stored in a file", NONE, of(InAFile),
        "the file exists in every run; isolate the agent's file system",
    ),
    Mutant(
        "the first reward, in shared memory", NONE, of(InSharedMemory),
        "as a file; isolation does not stop it, a container does",
    ),
    Mutant(
        "raw rewards if there are at least 64 replicates", NONE, of(OfLargeBatches),
        "the test plays two replicates; isolate the agent",
    ),
    Mutant(
        "raw data, but not while an audit calls", NONE, of(Aware),
        "no audit sees behaviour that it cannot provoke; read the code, or isolate the agent",
    ),
    Mutant(
        "raw data, and an agent that changes the audit's code", NONE, of(Blinding),
        "the agent runs in the process of the audit; isolate the agent",
    ),
    Mutant(
        "a raw number too small to change an action", NONE, of(Harmless),
        "no output depends on it",
    ),
)  # fmt: skip


def clear() -> None:
    """Remove the files that mutants write."""
    for kind in (InAFile, InSharedMemory):
        kind.file.unlink(missing_ok=True)


def measure(only: str = "", say: Callable[[str], None] = print) -> Measured:
    """Return mutants whose description contains `only`, their reports, and processor seconds."""
    audits = []
    for mutant in MUTANTS:
        if only in mutant.what:
            start = time.process_time()
            report = mutant.run()
            audits.append((mutant, report, time.process_time() - start))
            say(f"{audits[-1][2]:6.1f} s  {check_of(report):10s} {mutant.what}")
            clear()
    return audits


def table(audits: Measured) -> str:
    """Return the Markdown table of the benchmark."""
    lines = ["| mutant | verdict | check | found |", "|---|---|---|---|"]
    for mutant, report, _ in audits:
        check = check_of(report)
        verdict, text = "REFUSED", str(report)
        if isinstance(report, AuditReport):
            verdict = report.verdict
            said = report.details
            text = {
                RAW: said.get("raw data", ""),
                DISTANCE: said.get("raw data", ""),
                RESIDUALS: said.get("in deployment", said.get("residuals", "")),
                BOUNDS: str(next(iter(report.violations), "")).removesuffix("  <- refuted"),
            }.get(check, "")
        text = mutant.why or text.split(";")[0]
        lines.append(f"| {mutant.what} | {verdict} | {check} | {text} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="mutants whose description contains this")
    parser.add_argument("--write", type=Path, help="replace the table of this page")
    options = parser.parse_args()
    audits = measure(options.only)
    made = table(audits)
    print(made)
    print(f"\n{sum(seconds for *_, seconds in audits):.0f} s of processor time")
    if options.write:
        put(options.write, "mutations", made)


if __name__ == "__main__":
    main()
