"""The curator: releasers, charges and guarantees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from curated import curator
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym import Budget
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import (
    AgentError,
    BudgetError,
    BudgetExceeded,
    FixedError,
    HorizonExceeded,
    ParameterError,
)
from dpb_gym.privacy import (
    Composition,
    Curator,
    GaussianEvent,
    NoiseSource,
    PSDBall,
    Releaser,
    Schedule,
    ZCDPEvent,
    accounting,
)
from dpb_gym.privacy.releasers.named_sums import LogSum
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.registry import AgentSpec
from dpb_gym.streams import AgentStreams

BUDGETS = ["rho=0.5", "eps=1,delta=1e-5"]


# ------------------------------------------------------------------ charges


@pytest.mark.parametrize("number", [2, 22])
def test_releasers_of_the_same_records_add_up(number: int) -> None:
    """Their noise is independent, and the ledger states their total cost."""
    own = curator("rho=0.5", unit="reward", horizon=10)
    own.as_printed("a test")
    sums = [own.batch_sum(2, reward=(0.0, 1.0), sigma=1.0) for _ in range(number)]
    for each in sums:
        each.add([0.3], [[1.0, 0.0]])
        each.release()
    assert own.ledger.spent == pytest.approx(number * 0.5)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("number", [1, 2, 22])
def test_default_releasers_share_the_budget(budget: str, number: int) -> None:
    own = curator(budget, horizon=10)
    sums = [own.running_sum(2, reward=(0.0, 1.0)) for _ in range(number)]
    mu = math.sqrt(sum((s.sensitivity * s.gain / s.sigma) ** 2 for s in sums))
    limit = own.budget.limit
    assert limit * (1 - 1e-6) <= own.ledger.spent <= limit
    assert mu == pytest.approx(own.guarantee.curve.events[0].gaussian_mu * math.sqrt(
        1 if len(own.guarantee.curve.events) == 1 else number
    ))  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.sampled_from(BUDGETS),
    st.booleans(),
)
def test_shares_spend_the_whole_budget_jointly(
    weights: list[float], budget: str, with_mle: bool
) -> None:
    own = curator(budget, horizon=20)
    shares = [0.999 * w / sum(weights) for w in weights]
    made = [own.batch_sum(2, clip=1.0, share=share) for share in shares[:-1]]
    last = (
        own.minimiser(2, loss=print, gradient_bound=2.0, curvature=1.0, calls=3)
        if with_mle
        else own.running_sum(symmetric=2, clip=PSDBall(1.0))
    )
    last.ready()
    assert len(own.ledger.entries) == len(made) + 1
    limit = own.budget.limit
    assert limit * (1 - 2e-4) <= own.ledger.spent <= limit * (1 + 1e-9)


def test_shares_are_checked() -> None:
    own = curator()
    own.batch_sum(2, clip=1.0, share=0.7)
    with pytest.raises(BudgetError, match="more than 1"):
        own.batch_sum(2, clip=1.0, share=0.4)
    for bad in (0.0, -1.0, 1.5, math.nan, "half"):
        with pytest.raises(ParameterError):
            own.batch_sum(2, clip=1.0, share=bad)
    full = curator()
    full.batch_sum(2, clip=1.0, share=1.0)
    full.batch_sum(2, clip=1.0, what="what is left")
    with pytest.raises(BudgetError, match="nothing for what is left"):
        full.seal()


def test_no_releaser_is_created_after_the_first_use() -> None:
    own = curator()
    own.batch_sum(2, clip=1.0).add([[0.1, 0.2]])
    with pytest.raises(BudgetError, match="charged already"):
        own.batch_sum(2, clip=1.0)


@pytest.mark.parametrize("noise", [None, "system"])
def test_the_pair_that_was_asked_for_is_printed(noise: str | None) -> None:
    if noise is not None:
        pytest.importorskip("opendp")
    own = curator("eps=1,delta=1e-6", unit="reward", notion="central", noise=noise, horizon=9)
    own.batch_sum(2, reward=(0.0, 1.0))
    assert str(own.guarantee).endswith("eps=1 at delta=1e-06")
    assert "asked" not in own.guarantee.to_dict()
    several = curator("eps=1,delta=1e-6", 2, unit="reward", notion="central")
    for i in range(2):
        several.single(i).running_sum(2, reward=(0.0, 1.0), horizon=9)
    assert str(several.guarantee).endswith("eps=1 at delta=1e-06")


def test_printed_noise_is_charged_at_its_true_cost() -> None:
    """It passes below the budget; above it is rejected before noise is drawn."""
    fits = curator("rho=0.5", unit="reward")
    fits.batch_sum(2, reward=(0, 1), sigma=2.0).ready()
    assert fits.ledger.spent == 0.125 and fits.guarantee.basis == "computed"
    over = curator("rho=0.5")
    releaser = over.batch_sum(2, reward=(0, 1), sigma=0.9)
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        releaser.add([0.5], [[1.0, 0.0]])
    assert not over.ledger.entries
    printed = curator("rho=0.5", unit="reward")
    printed.as_printed("Theorem 9")
    printed.batch_sum(2, reward=(0, 1), sigma=0.5).ready()
    assert printed.guarantee.rho == 2.0 and "Theorem 9" in printed.guarantee.basis


# ------------------------------------------------------------------ basis of the guarantee


class Claims(dpb_gym.SingleAgent):
    """Agent that reads raw rewards and creates no releaser."""

    protects = ("central", "reward")

    def begin(self):
        self.guarantee = "central zCDP rho=0.5"
        self.best = 0.0

    def act(self, context):
        return int(self.best > 0.5)

    def observe(self, context, action, feedback):
        self.best = feedback.reward


class Declares(dpb_gym.SingleAgent):
    """Agent that declares its cost and learns nothing."""

    protects = ("central", "reward")

    def act(self, context):
        return 0

    def begin(self):
        self.curator.charge(GaussianEvent(10.0, 1.0), what="something of its own")


def play(agent, budget="rho=0.01", **options):
    options = {"horizon": 40, "replicates": 2, "env_kwargs": {"dim": 3}, **options}
    return dpb_gym.evaluate(
        "DPB/Recommendation-v0", {"x": (agent, budget)}, progress=False, **options
    )


class Evil:
    """A number that adds itself again when it is converted."""

    def __init__(self, sums):
        self.sums = sums

    def __array__(self, dtype=None, copy=None):
        self.sums.add([0.5], along=np.ones((1, 3)))
        return np.array([0.5])


class Long(list):
    """Rows that state a wrong number of rounds."""

    shape = (1,)


def test_records_are_converted_before_they_are_counted() -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=1000)
    sums = made.batch_sum(3, reward=(0.0, 1.0), horizon=10**6)
    with made.round(1), pytest.raises(BudgetError, match="2 records in one round"):
        sums.add(Evil(sums), along=np.ones((1, 3)))
    rows = Long([[0.5]] * 10)
    with made.round(2), pytest.raises(BudgetError, match="10 records in one round"):
        sums.add_rounds(rows, np.ones((10, 1, 3)))


class Dictionary(dict):
    """A mapping that states one round and shows ten."""

    shape = (1,)

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 1

    def __getitem__(self, key):
        return self.rows


class Number(float):
    """A number that states one round and shows ten."""

    shape = (1,)
    rows: np.ndarray

    def __len__(self):
        return 1

    def __getitem__(self, key):
        return self.rows


class Iterated:
    """An object that states one round and yields ten."""

    shape = (1,)

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return 1

    def __iter__(self):
        return iter(self.rows)


def number(rows):
    made = Number(1.0)
    made.rows = rows
    return made


@pytest.mark.parametrize("lying", [Dictionary, Iterated, number])
@pytest.mark.parametrize("make", ["batch_sum", "running_sum"])
def test_records_of_rounds_are_arrays(lying: Any, make: str) -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=1000)
    sums = getattr(made, make)(3, reward=(0.0, 1.0))
    rows = lying(np.full((10, 1), 0.5)), lying(np.ones((10, 1, 3)) / 2.0)
    with made.round(1), pytest.raises(ParameterError, match="array"):
        sums.add_rounds(*rows)
    assert behind(sums).rounds == 0


class Columns(Releaser):
    """A releaser of another package that takes several columns and checks none."""

    def cost(self, rho):
        return ZCDPEvent(rho)

    def open(self, rho, noise):
        self.opened = True

    def add_rounds(self, first, second=None):
        self.taken = len(first)


@pytest.mark.parametrize("first", [np.ones((10, 1)), np.ones(()), [[1.0], [1.0, 2.0]], "text"])
def test_columns_of_rounds_are_arrays_of_one_length(first: Any) -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=1000)
    columns = Columns(made, share=None, what="columns")
    with made.round(1), pytest.raises(ParameterError, match="all with the rounds as first axis"):
        columns.add_rounds(second=np.ones((1, 1)), first=first)
    with made.round(2), pytest.raises(ParameterError, match="all with the rounds as first axis"):
        columns.add_rounds(None)
    with made.round(3, n=10):
        columns.add_rounds(np.ones((10, 1)), second=None)
    assert columns.taken == 10


@pytest.mark.parametrize("along", [np.ones((1, 1, 3)), np.ones((10, 1, 2)), np.ones((10, 2, 3))])
@pytest.mark.parametrize("make", ["batch_sum", "running_sum"])
def test_directions_of_rounds_have_the_shape_of_their_records(along: Any, make: str) -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=1000)
    sums = getattr(made, make)(3, reward=(0.0, 1.0))
    with made.round(1, n=10), pytest.raises(ParameterError):
        sums.add_rounds(along=along / 4.0, records=np.full((10, 1), 0.5))
    assert behind(sums).rounds == 0


@pytest.mark.parametrize(
    ("records", "along"),
    [
        (np.full((4, 1, 2), 0.5), None),
        (np.full((4, 1), 0.5), np.full((4, 1, 3, 2), 0.5)),
        (np.full((4, 2), 0.5), np.full((4, 1, 2), 0.5)),
        (np.full(4, 0.5), np.full((4, 1, 2), 0.5)),
        (np.full((4, 1), 0.5), np.full((4, 1, 3), 0.5)),
    ],
)
def test_rows_and_squares_of_rounds_have_their_shape(records: Any, along: Any) -> None:
    for size in ({"width": 3}, {"symmetric": 3}):
        made = Curator("rho=1", ("joint", "user-round"), noise=NoiseSource.from_seed(0), horizon=99)
        sums = made.batch_sum(**size, clip=1.0)
        if along is not None and along.shape == (4, 1, 3) and records.shape == (4, 1):
            sums.add_rounds(records, along)
            assert behind(sums).rounds == 4
        else:
            with pytest.raises(ParameterError, match="must have shape"):
                sums.add_rounds(records, along)
            assert behind(sums).rounds == 0


def test_masked_records_are_refused() -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=1000)
    sums = made.batch_sum(3, reward=(0.0, 1.0))
    masked = np.ma.array([0.5], mask=[True])
    with pytest.raises(ParameterError, match="masked array"):
        sums.add(masked, along=np.ones((1, 3)) / 2.0)
    with pytest.raises(ParameterError, match="masked array"):
        sums.add_rounds(masked[None], along=np.ones((1, 1, 3)) / 2.0)


@pytest.mark.parametrize(("t", "n"), [(1.5, 1), (3, -10), (3, 0), (float("nan"), 1), (True, 1)])
def test_rounds_are_positive_integers(t: object, n: object) -> None:
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=10)
    with pytest.raises(ParameterError), made.round(t, n):  # type: ignore[arg-type]
        pass


def test_schedules_are_copied_and_bounds_are_those_of_the_library() -> None:
    scales = np.full(4, 0.5)
    made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=40)
    plan = Schedule(np.arange(10, 41, 10), np.ones(4), scales)
    sums = made.weighted_sum(2, reward=(0.0, 1.0), schedule=plan)
    made.seal()
    scales[:] = 100.0
    assert sums.schedule.scales.tolist() == [0.5] * 4

    class Growing(Segment):
        high = 1.0

    with pytest.raises(ParameterError, match="could change its bound"):
        Curator(None, replicates=1).batch_sum(2, clip=Growing(0.0, 1.0))


class Leak(Releaser):
    """A releaser of another package that states what its cost rests on."""

    basis = "computed by its author"

    def cost(self, rho):
        return GaussianEvent(1e6)

    def open(self, rho, noise):
        pass


def test_every_releaser_of_another_package_is_declared() -> None:
    for basis, module in (("computed by its author", __name__), ("computed", "dpb_gym.privacy")):
        kind = type("Leak", (Leak,), {"basis": basis, "__module__": module})
        made = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=10)
        kind(made, share=None, what="raw")
        made.seal()
        assert made.guarantee.basis.startswith("declared (the releaser Leak")


class Silent(NoiseSource):
    """A noise source of another package, whose noise is 0."""

    def spawn(self):
        return self

    def gaussian(self, std, width):
        return np.zeros((self.replicates, width))


def test_a_noise_source_of_another_package_is_declared() -> None:
    for module in (__name__, "dpb_gym.privacy.noise"):
        kind = type("Silent", (Silent,), {"__module__": module})
        made = Curator("rho=1", noise=kind(NoiseSource.from_seed(0).generators), horizon=10)
        made.batch_sum(2, clip=1.0)
        basis = "declared (the noise source Silent of"
        assert made.guarantee.basis.startswith(basis) and basis in str(made.guarantee)
    made = Curator("rho=1", noise="system", horizon=10)
    made.batch_sum(2, clip=1.0)
    assert made.guarantee.basis == "computed"


@pytest.mark.slow
def test_a_budget_that_was_never_charged_is_an_error() -> None:
    with pytest.raises(AgentError, match="never charged"):
        play(Claims)


@pytest.mark.slow
def test_a_declared_guarantee_has_basis_declared() -> None:
    (row,) = play(Declares).to_leaderboard().tasks[0].rows
    assert row.guarantee is not None and "declared" in str(row)


def test_a_budget_needs_something_to_protect() -> None:
    class Silent(Claims):
        protects = None

    with pytest.raises(AgentError, match="Silent gets a budget but does not say what it protects"):
        play(Silent)


def test_guarantees_of_parts_are_those_of_the_whole() -> None:
    whole = curator("rho=0.5", 3, notion="central", unit="reward", horizon=10)
    for i in range(3):
        sums = whole.single(i).running_sum(2, reward=(0.0, 1.0))
        sums.add(0.4, along=np.ones(2) / 2)
        assert sums.value.shape == (2,)
    assert whole.guarantee.rho == pytest.approx(0.5)


# ------------------------------------------------------------------ every Renyi order


@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
def test_rho_holds_at_every_order(rho: float) -> None:
    """Objective perturbation without truncation: eps 4.815 at rho .5, not 4.728."""
    info = dpb_gym.make_problem("DPB/Pricing-v0", horizon=200).info
    agent = dpb_gym.make_agent("explore-commit-pricing")
    agent.set_up(info, AgentStreams([0]), Budget.zcdp(rho))
    curve = agent.curator.guarantee.curve
    orders = 1 + np.geomspace(1e-3, 1e6, 2000)
    total = sum(event.rdp(orders) for event in curve.events)
    assert (total <= rho * orders * (1 + 1e-9)).all()
    full = accounting.epsilon(Composition.of(ZCDPEvent(rho)), 1e-5)
    assert agent.curator.guarantee.epsilon(1e-5) <= full


# ------------------------------------------------------------------ noise


def noisy_sum(budget: str, configuration: str, episode: int = 0) -> tuple[float, np.ndarray]:
    streams = AgentStreams([7], configuration, episode)
    own = Curator(budget, noise=NoiseSource(streams.noise), horizon=5)
    sums = own.batch_sum(2, reward=(0.0, 1.0))
    for _ in range(5):
        sums.add([0.7], [[0.6, 0.8]])
    return sums.sigma, sums.release()[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("rho=0.1", "agent, rho=0.1"), ("rho=1", "agent, rho=1")),
        (("rho=0.1", "agent, rho=0.1"), ("rho=1", "another, rho=1")),
        (("rho=0.1", "agent", 0), ("rho=1", "agent", 1)),
    ],
)
def test_two_releases_do_not_share_their_normals(one: tuple, other: tuple) -> None:
    """With common noise a weighted difference would be the raw sum."""
    (s1, r1), (s2, r2) = noisy_sum(*one), noisy_sum(*other)
    mixed = (s1 * r2 - s2 * r1) / (s1 - s2)
    assert np.abs(mixed - 3.5 * np.array([0.6, 0.8])).min() > 1e-6


def test_the_harness_keys_noise_by_agent_and_budget() -> None:
    spec = dpb_gym.agent_spec("adaprivate-ucb")
    texts = {
        spec.streams([0], Budget.parse(budget)).configuration
        for budget in ("rho=0.1", "rho=1", "eps=1,delta=1e-5")
    }
    wide = dpb_gym.agent_spec("adaprivate-ucb", alpha=2.0).streams([0], Budget.zcdp(1.0))
    assert len(texts | {wide.configuration}) == 4
    same = dpb_gym.agent_spec("adaprivate-ucb", alpha=1.0).streams([0], Budget.zcdp(1.0))
    assert same.configuration in texts, "a parameter that is written out is the same agent"


def test_an_agent_keeps_its_noise_when_it_is_given_another_parameter() -> None:
    def before(alpha: float = 1.0) -> None: ...

    def after(alpha: float = 1.0, beta: object = None) -> None: ...

    def key(maker: Any, **params: Any) -> str:
        spec = AgentSpec("x", "m:x", ("pricing",), params=params, maker=maker)
        return spec.streams([0]).configuration

    assert key(before) == key(after) == key(after, alpha=1.0) == key(after, beta=None)
    assert len({key(before, alpha=2.0), key(before), key(after, beta=1.0)}) == 3
    assert key(before, alpha=2.0) == key(after, beta=None, alpha=2.0)


@pytest.mark.parametrize(
    "name",
    [
        "adaprivate-ucb", "jdp-lin-ucb", "one-pass-linear", "one-pass-linear-joint",
        "one-pass-mnl", "dpmnl", "one-pass-pricing",
    ],
)  # fmt: skip
def test_agents_run_on_system_noise(name: str) -> None:
    pytest.importorskip("opendp")
    (kind,) = dpb_gym.agent_spec(name).supports
    problem = dpb_gym.make_problem(f"DPB/{kind.capitalize()}-v0", dim=3, horizon=60)
    agent = dpb_gym.make_agent(name)
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.zcdp(1.0), noise="system")
    instance = problem.instance([0, 1])
    for t in range(60):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        if t < 59:
            instance.advance()
    assert 0.999 < agent.curator.guarantee.rho <= 1.0
    events = agent.curator.guarantee.curve.events
    assert any(isinstance(event, ZCDPEvent) for event in events)


# ------------------------------------------------------------------ raw statistics


def test_clip_counts_are_never_stored() -> None:
    own = curator(horizon=4)
    sums = own.batch_sum(2, clip=0.5, what="clipped")
    sums.add([[3.0, 4.0]])
    assert own.clip_counts()["0: clipped"].tolist() == [1]
    result = play("adaprivate-ucb", "rho=1")
    assert "clip" not in str(result.records()[0])


def test_bad_curators() -> None:
    with pytest.raises(ParameterError, match="needs noise"):
        Curator("rho=1")
    with pytest.raises(ParameterError, match="noise must be one of"):
        curator(noise="seed")
    with pytest.raises(BudgetError):
        curator("rho 1")
    with pytest.raises(BudgetError):
        curator(unit="customer")


# ------------------------------------------------------------------ rounds


class Count(Releaser):
    """A releaser of another package that counts its records."""

    seen = 0

    def cost(self, rho: float) -> GaussianEvent:
        return GaussianEvent(math.sqrt(0.5 / rho))

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        pass

    def add(self, record: Any) -> None:
        self.ready()
        self.seen += 1


def zero_loss(theta: Any, _: Any) -> tuple[float, Any, Any]:
    return 0.0, np.zeros(2), np.zeros((2, 2))


def releaser_of(kind: str, own: Curator, horizon: int) -> tuple[Any, Any]:
    """Return a releaser for many records, and a function that adds one record."""
    many = {"horizon": horizon}
    if kind == "own":
        Count(own, share=None, what="a count")
        return own.releasers[-1], lambda sums: sums.add([1.0])
    if kind == "minimiser":
        fit = own.minimiser(2, loss=zero_loss, gradient_bound=1.0, curvature=1.0, records=horizon)
        return fit, lambda fit: fit.add([1.0])
    if kind == "user_sum":
        sums = own.user_sum(2, radius=1.0, reward=(0.0, 1.0), **many)
        return sums, lambda sums: sums.add([1.0], [[1.0, 0.0]], users=np.array([0]))
    make = getattr(own, kind)
    if kind == "weighted_sum":
        many["schedule"] = Schedule.unweighted(np.array([horizon]))
    if kind == "shuffled_sum":
        many["batch"] = horizon
    return make(2, reward=(0.0, 1.0), **many), lambda sums: sums.add([1.0], [[1.0, 0.0]])


KINDS = [
    "batch_sum", "running_sum", "weighted_sum", "shuffled_sum", "user_sum", "minimiser", "own",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=5))
def test_a_round_admits_one_record_whatever_the_horizon(
    kind: str, openings: list[tuple[int, int]]
) -> None:
    unit = "user-rewards" if kind == "user_sum" else "reward"
    own = curator("rho=0.5", notion="central", unit=unit, horizon=50)
    sums, add = releaser_of(kind, own, 10**4)
    own.rounds.attend()
    for rounds, records in openings:
        with own.round(n=rounds):
            for i in range(records):
                if i < rounds:
                    add(sums)
                    continue
                with pytest.raises(BudgetError, match=f"{rounds + 1} records in"):
                    add(sums)
    with pytest.raises(BudgetError, match="while the agent observes"):
        add(sums)
    entered = sum(min(pair) for pair in openings)
    raw = behind(sums)
    assert entered == next(getattr(raw, n) for n in ("rounds", "count", "seen") if hasattr(raw, n))


@pytest.mark.parametrize(
    ("unit", "options", "most"),
    [
        ("reward", {}, 1),
        ("reward", {"participations": 3}, 3),
        ("user-round", {"participations": 3}, 3),
        ("user-rewards", {"participations": 3}, 1),
        ("user", {"limit": 3}, 1),
    ],
)
def test_a_round_admits_what_its_plan_is_charged_for(
    unit: str, options: dict[str, Any], most: int
) -> None:
    own = curator("rho=0.5", notion="central", unit=unit, horizon=50)
    sums = own.batch_sum(2, clip=1.0, **options)
    users = {"users": np.array([4])} if "limit" in options else {}
    with own.round(1):
        for _ in range(most):
            sums.add([[0.1, 0.2]], **users)
        with pytest.raises(BudgetError, match=f"for {most} per round"):
            sums.add([[0.1, 0.2]], **users)
    assert behind(sums).rounds == most


def test_copies_by_add_rounds_count() -> None:
    own = curator("rho=0.5", unit="reward", notion="central", horizon=50)
    sums = own.running_sum(2, reward=(0.0, 1.0), horizon=10**4, every=100)
    with own.round(5, n=4):
        sums.add_rounds(np.ones((3, 1)), np.zeros((3, 1, 2)))
        with pytest.raises(BudgetError, match="23 records in 4 rounds"):
            sums.add_rounds(np.ones((20, 1)), np.zeros((20, 1, 2)))
        sums.add([1.0], [[0.0, 1.0]])
    assert behind(sums).rounds == 4


def test_rounds_are_opened_once_and_in_order() -> None:
    own = curator("rho=0.5", horizon=50)
    with own.round(3, n=2), pytest.raises(BudgetError, match="was opened before"), own.round(9):
        pass
    for again in (3, 4):
        with pytest.raises(BudgetError, match="was opened before"), own.round(again):
            pass
    with own.round(), pytest.raises(BudgetError, match="round 5"), own.round(5):
        pass
    assert own.rounds.newest == 5


def test_single_replicates_open_with_the_whole() -> None:
    whole = curator("rho=0.5", 2, unit="reward", notion="central", horizon=50)
    sums = [whole.single(i).batch_sum(2, reward=(0.0, 1.0)) for i in (0, 1)]
    whole.rounds.attend()
    for t in (1, 2):
        with whole.round(t):
            for each in sums:
                each.add(0.5, along=[1.0, 0.0])
                with pytest.raises(BudgetError, match="2 records in one round"):
                    each.add(0.5, along=[1.0, 0.0])
    with pytest.raises(BudgetError, match="while the agent observes"):
        sums[0].add(0.5, along=[1.0, 0.0])


def test_without_a_harness_the_horizon_is_the_limit() -> None:
    own = curator("rho=0.5", horizon=3)
    sums = own.batch_sum(2, clip=1.0)
    for _ in range(3):
        sums.add([[0.1, 0.2]])
    with pytest.raises(HorizonExceeded):
        sums.add([[0.1, 0.2]])


def test_sums_of_a_log_are_not_for_agents() -> None:
    class WithLog(dpb_gym.SingleAgent):
        protects = ("central", "reward")

        def begin(self) -> None:
            LogSum(self.curator, 2, clip=1.0, sensitivity=1e-6)

    with pytest.raises(AgentError, match=r"sensitivity from the caller|LogSum"):
        dpb_gym.evaluate("DPB/Recommendation-v0", {"a": (WithLog, "rho=1")}, 4, 1)


def test_what_another_package_charges_is_declared() -> None:
    own = curator("rho=0.5", horizon=3)
    Count(own, share=None, what="a count")
    assert own.guarantee is not None
    assert own.guarantee.basis == f"declared (the releaser Count of {__name__})"
    known = curator("rho=0.5", horizon=3)
    known.batch_sum(2, clip=1.0)
    assert known.guarantee is not None and known.guarantee.basis == "computed"
    fit = curator("rho=0.5", horizon=3)
    fit.minimiser(2, loss=zero_loss, gradient_bound=1.0, curvature=1.0)
    assert fit.guarantee is not None and "declared (loss of private MLEs" in fit.guarantee.basis


# ------------------------------------------------------------------ handles


def test_handles_show_copies_and_fix_their_attributes() -> None:
    own = curator("rho=0.5", horizon=20)
    sums = own.weighted_sum(2, clip=1.0, schedule=Schedule.geometric(20, 5, 1.4, 1.0))
    before = sums.schedule.scales.copy()
    sums.schedule.scales[:] = 1e9
    assert np.array_equal(sums.schedule.scales, before)
    fit = own.releasers[0]
    for name in ("sigma", "what", "loss", "sensitivity", "schedule", "centre"):
        with pytest.raises(FixedError, match="is fixed"):
            setattr(fit, name, 1.0)


def test_the_centre_of_a_ridge_is_fixed_when_the_agent_begins() -> None:
    own = curator("rho=0.5", horizon=20)
    bounds = {"gradient_bound": 1.0, "curvature": 1.0}
    fit = own.minimiser(2, loss=zero_loss, **bounds)
    fit.centre = np.ones(2)
    fit.centre[:] = 5.0  # of a copy
    assert np.array_equal(fit.centre, np.ones(2))
    own.rounds.attend()
    for each in (fit, behind(fit)):
        with pytest.raises(FixedError, match="set in begin"):
            each.centre = np.zeros(2)


def test_the_whole_declares_what_a_single_replicate_declares() -> None:
    whole = curator("rho=0.5", 2, unit="reward", notion="central", horizon=50)
    whole.provisos = ("of the problem",)
    whole.single(0).batch_sum(2, clip=1.0)
    whole.single(1).batch_sum(2, clip=1.0, sensitivity=0.01)
    assert whole.guarantee is not None
    assert whole.guarantee.provisos[0] == "of the problem"
    assert "declared: sensitivity 0.01 of sums of disjoint batches" in str(whole.guarantee)


def test_the_whole_names_a_foreign_releaser_of_one_replicate() -> None:
    class Own(Sum):
        pass

    whole = curator("rho=0.5", 2, unit="reward", notion="central", horizon=50)
    whole.single(0).batch_sum(2, clip=1.0)
    Own(whole.single(1), 2, clip=1.0)
    assert "declared (the releaser" in str(whole.guarantee)


@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_a_plan_of_disjoint_batches_releases_each_record_once(noise: str) -> None:
    """It costs a record one release, so later ones must not have it."""
    ends = np.array([1, 3, 6])
    plan = Schedule(ends, np.ones(3), np.ones(3), carry=0.0)
    source = NoiseSource.from_seed(0) if noise == "seeded" else "system"
    own = Curator("rho=1e12", noise=source, horizon=6)
    sums = own.weighted_sum(1, reward=(0.0, 1000.0), schedule=plan)
    released = []
    for _ in range(6):
        sums.add(np.full(1, 100.0), along=np.ones((1, 1)))
        released.append(float(sums.value[0, 0]))
    np.testing.assert_allclose([released[t - 1] for t in ends], [100.0, 200.0, 300.0], rtol=1e-3)


@pytest.mark.parametrize("name", ["open", "newest", "openings", "attended", "of_agent"])
def test_rounds_are_changed_by_their_methods_only(name):
    own = Curator("rho=1", noise=NoiseSource.from_seed(0), horizon=10)
    sums = own.batch_sum(1, clip=1.0)
    with own.round(3):
        with pytest.raises(AttributeError):
            setattr(own.rounds, name, 5)
        sums.add([[1.0]])
        with pytest.raises(BudgetError, match="2 records in one round"):
            sums.add([[1.0]])
    assert own.rounds.openings == 1
