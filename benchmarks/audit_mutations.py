"""Mutation benchmark of audits: broken agents and mechanisms, and the check that detects each.

    python benchmarks/audit_mutations.py [--write docs/audit.md] [--only TEXT]

Every mutant claims a guarantee that it does not have. Agents sum r x in private batches of eight
rounds on a small recommendation problem (d = 2, 12 arms, 3 candidates), at rho = 0.5. The first
mutants read raw data, the next have wrong noise, the last are mechanisms. Mutants that pass are
listed with the reason. ``--write`` replaces the table of a page.
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
from dpb_gym import Budget, SingleAgent
from dpb_gym.agent import Agent
from dpb_gym.audits import (
    AuditReport,
    audit,
    audit_scores,
    audit_sum,
    interference,
)
from dpb_gym.errors import ParameterError
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.privacy import (
    BatchSum,
    Composition,
    GaussianEvent,
    Guarantee,
    NoiseSource,
    PSDBall,
    objective_plan,
)
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
    run: Callable[[], AuditReport]
    why: str = ""


def check_of(report: AuditReport) -> str:
    """Return the check that rejected a claim, `NONE` if it passed."""
    if report.interference:
        return RAW
    if report.residuals:
        return RESIDUALS
    if report.violations:
        return BOUNDS
    return NONE if report.verdict == "PASS" else CONTROL


Measured = list[tuple[Mutant, AuditReport, float]]

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
            found = [o for o in gc.get_objects() if isinstance(o, BatchSum)]
            raw = [o._total for o in found if o.rounds and o.replicates == len(self.theta)]
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
        (sums,) = (o for o in gc.get_referents(self.sums) if isinstance(o, BatchSum))
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
        if event == "call" and frame.f_code is BatchSum._add.__code__:
            self.record = float(np.ravel(frame.f_locals["records"])[0])

    def peek(self) -> float:
        return self.record - 0.5


class ByClass(ByAttribute):
    """Replaces a method of the releaser's class by one that stores the newest record."""

    usual = staticmethod(BatchSum._add)
    record = 0.5

    def begin(self) -> None:
        super().begin()
        BatchSum._add = ByClass.stored  # type: ignore[method-assign]

    @staticmethod
    def stored(sums: BatchSum, records: Any, along: Any) -> None:
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


class Telling(BatchSum):
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
            found = [self.sums.release()]
            with contextlib.suppress(ParameterError, AttributeError):  # where an audit looks on
                found += [one.release() for one in copies]
            self.theta = self.theta + np.mean(found, axis=0)

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
        interference._digest = lambda value: b""


class Harmless(ByAttribute):
    """Adds a raw number that is too small to change an action."""

    def peeks(self, t: int) -> bool:
        return t > self.every

    def peek(self) -> float:
        return 1e-18 * super().peek()


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


class HonestRunning(Honest):
    """Greedy on a running sum, without an error."""

    def begin(self) -> None:
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    def act(self, context: Any) -> int:
        return int((context.features @ self.sums.value).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])


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


def of(agent: Any, runs: int = 60, **how: Any) -> Callable[[], AuditReport]:
    def run() -> AuditReport:
        usual, digest = BatchSum._add, interference._digest
        try:
            return audit(agent, BUDGET, runs, **{**SMALL, **how})
        finally:  # what a mutant replaces
            BatchSum._add, interference._digest = usual, digest  # type: ignore[method-assign]

    return run


SLATES: dict[str, Any] = {
    "env_id": "DPB/Assortment-v0",
    "env_kwargs": {"n_items": 8, "capacity": 4, "dim": 2, "context_norm": "clip"},
    "params": {"explore": 8, "max_updates": 1, "share": 0.9},
}
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
    Mutant("the action depends on the customer, claim central", BOUNDS, of(Own, 200)),
    Mutant("half of the noise variance", RESIDUALS, of(Scaled, 200)),
    Mutant("a tenth of the noise variance", RESIDUALS, of(LittleNoise, 200)),
    Mutant("noise in the first batch only", RESIDUALS, of(FirstOnly)),
    Mutant("one noise vector for all batches", RESIDUALS, of(OneVector)),
    Mutant("a third of the noise after round 500", RESIDUALS, of(Late, deployment=2000)),
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


def measure(
    only: str = "", say: Callable[[str], None] = print
) -> list[tuple[Mutant, AuditReport, float]]:
    """Return mutants whose description contains `only`, their reports, and processor seconds."""
    found = []
    for mutant in MUTANTS:
        if only in mutant.what:
            start = time.process_time()
            report = mutant.run()
            found.append((mutant, report, time.process_time() - start))
            say(f"{found[-1][2]:6.1f} s  {check_of(report):10s} {mutant.what}")
            InAFile.file.unlink(missing_ok=True)
    return found


def table(found: Measured) -> str:
    """Return the Markdown table of the benchmark."""
    lines = ["| mutant | verdict | check | found |", "|---|---|---|---|"]
    for mutant, report, _ in found:
        check = check_of(report)
        text = {
            RAW: report.details.get("raw data", ""),
            RESIDUALS: report.details.get("in deployment", report.details.get("residuals", "")),
            BOUNDS: str(next(iter(report.violations), "")).removesuffix("  <- refuted"),
        }.get(check, "")
        text = mutant.why or text.split(";")[0]
        lines.append(f"| {mutant.what} | {report.verdict} | {check} | {text} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="mutants whose description contains this")
    parser.add_argument("--write", type=Path, help="replace the table of this page")
    options = parser.parse_args()
    found = measure(options.only)
    made = table(found)
    print(made)
    print(f"\n{sum(seconds for *_, seconds in found):.0f} s of processor time")
    if options.write:
        put(options.write, "mutations", made)


if __name__ == "__main__":
    main()
