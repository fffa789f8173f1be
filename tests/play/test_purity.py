"""Leaks of responses past the curator: each is stopped, and works without the measure against it.

A leak is a pair of functions: `put` has a response y and leaves it somewhere, as a `record` would;
`get` takes it from there, as the `act` of a later round would.
"""

# ruff: noqa: NPY002  # the hidden generator is the point

from __future__ import annotations

import builtins
import ctypes
import math
import os
import random
import sys
import tempfile
import time
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import objmode

import dpb_gym
from dpb_gym.errors import ActionError, AgentError
from dpb_gym.kernels import _jit, vectors
from dpb_gym.kernels.customer_candidates import _among_equals
from dpb_gym.kernels.deferred import Deferred, shape_checked
from dpb_gym.kernels.scratch import frame_vector
from dpb_gym.kernels.vectors import dot
from dpb_gym.play import Algorithm, Functions, Plan, jit, player, purity
from dpb_gym.play.player import Player, read_only
from dpb_gym.privacy import Curator
from dpb_gym.privacy.releasers.release_times import OnRequest
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.streams import AgentStreams


class State(NamedTuple):
    theta: Any


class OddState(NamedTuple):
    """A state whose fields have names of a hidden generator."""

    random: Any
    seed: Any


LIST = [0.0]
ARRAY = np.zeros(3)
OBJECT = SimpleNamespace(y=0.0)
TYPED = numba.typed.List([0.0])
TYPED_DICT = numba.typed.Dict.empty(numba.types.int64, numba.types.float64)
FILE = os.path.join(tempfile.mkdtemp(), "response")
LIBC = ctypes.CDLL(None)
SRAND, RAND = LIBC.srand, LIBC.rand
SRAND.argtypes, SRAND.restype = [ctypes.c_uint], None
RAND.argtypes, RAND.restype = [], ctypes.c_int
PI_LIKE = 3.0
OPTIONS = (1, 2.5, (3, 4))


# What Python could remember. Compiled code rejects most of it, uncompiled code nothing.
def list_put(s, x, y):
    LIST.append(y)


def list_get(s, x):
    return LIST[-1]


def array_put(s, x, y):
    ARRAY[0] = y


def array_get(s, x):
    return ARRAY[0]


def object_put(s, x, y):
    OBJECT.y = y


def object_get(s, x):
    return OBJECT.y


def typed_put(s, x, y):
    TYPED[0] = y


def typed_get(s, x):
    return TYPED[0]


def typed_dict_put(s, x, y):
    TYPED_DICT[0] = y


def typed_dict_get(s, x):
    return TYPED_DICT[0]


def python_put(s, x, y):
    random.seed(y)


def python_get(s, x):
    return random.random()


def environment_put(s, x, y):
    os.environ["RESPONSE"] = str(y)


def environment_get(s, x):
    return float(os.environ["RESPONSE"])


def file_put(s, x, y):
    with open(FILE, "w") as file:
        file.write(str(y))


def file_get(s, x):
    with open(FILE) as file:
        return float(file.read())


def frame_put(s, x, y):
    pass


def frame_get(s, x):
    return sys._getframe(1).f_locals["y"]


def frame_vector_put(s, x, y):
    frame_vector()[0] = y


def print_put(s, x, y):
    print(y, file=sys.stderr)


def clock_put(s, x, y):
    time.sleep(y)


def error_put(s, x, y):
    if y > 0.5:
        raise ValueError("leak")


def global_put(s, x, y):
    global PI_LIKE
    PI_LIKE = y


def global_get(s, x):
    return PI_LIKE


def default_put(s, x, y, memory=LIST):
    memory.append(y)


def import_put(s, x, y):
    import os

    os.environ["RESPONSE"] = str(y)


def nested_put(s, x, y):
    def inner():
        return 1.0

    inner.y = y


def lambda_put(s, x, y):
    return (lambda: y)()


def comprehension_put(s, x, y):
    return sum([y for _ in range(2)])


def generator_put(s, x, y):
    yield y


def attribute_put(s, x, y):
    attribute_put.y = y


def attribute_get(s, x):
    return attribute_put.y


def getattr_put(s, x, y):
    getattr(s.theta, "fill")(y)  # noqa: B009


# Writes into what is read-only.
def context_put(s, x, y):
    x[0] = y


def context_get(s, x):
    return x[0]


def state_put(s, x, y):
    s.theta[0] = y


def state_get(s, x):
    return s.theta[0]


def alias_put(s, x, y):
    t = s.theta
    u = t[:]
    u[0] = y


def transpose_put(s, x, y):
    u = s.theta.T
    u[0] = y


def slice_put(s, x, y):
    s.theta[:] = y


def inplace_put(s, x, y):
    t = s.theta
    t += y - t[0]


def argument_put(s, x, y):
    np.maximum(y, y, s.theta)


def clip_put(s, x, y):
    np.clip(np.full(3, y), 0.0, 1.0, s.theta)


def outer_put(s, x, y):
    np.outer(np.full(3, y), np.ones(1), s.theta)


def loop_put(s, x, y):
    for i in range(3):
        s.theta[i] = y


# Writes that need names which are not allowed; some pass numba although the array is read-only.
def flat_put(s, x, y):
    s.theta.flat[0] = y


def nditer_put(s, x, y):
    for v in np.nditer(s.theta):
        v[()] = y


def fill_put(s, x, y):
    s.theta.fill(y)


def reshape_put(s, x, y):
    u = s.theta.reshape(3, 1)
    u[0, 0] = y


def ravel_put(s, x, y):
    u = s.theta.ravel()
    u[0] = y


def view_put(s, x, y):
    u = s.theta.view(np.float64)
    u[0] = y


def sort_put(s, x, y):
    s.theta.sort()


def add_put(s, x, y):
    np.add(y, 0.0, s.theta)


def assign_put(s, x, y):
    s.theta = np.full(3, y)


def carray_put(s, x, y):
    u = numba.carray(s.theta.ctypes, 3)
    u[0] = y


# State that NumPy, the C library and memory have.
def generator_seed_put(s, x, y):
    np.random.seed(int(4 * y))


def generator_seed_get(s, x):
    return np.random.random()


def renamed_put(s, x, y):
    m = np
    m.random.seed(int(4 * y))


def renamed_get(s, x):
    m = np
    return m.random.random()


def c_put(s, x, y):
    SRAND(int(4 * y))


def c_get(s, x):
    return RAND()


def objmode_put(s, x, y):
    with objmode():
        LIST.append(y)


def objmode_get(s, x):
    with objmode(v="float64"):
        v = LIST[-1]
    return v


def empty_put(s, x, y):
    row = np.empty(37)
    row[5] = y
    return row[5]


def empty_get(s, x):
    return np.empty(37)[5]


class Leak(NamedTuple):
    """How a leak is stopped and shown.

    Attributes:
        put: Leaves a response somewhere.
        get: Finds it, or something that depends on it.
        measure: ``"whitelist"`` or ``"read-only"``.
        compiled: Whether it works in compiled code; otherwise without a compiler, where the
            whitelist alone stops it.
    """

    put: Any
    get: Any = state_get
    measure: str = "whitelist"
    compiled: bool = False


LEAKS = {
    "list": Leak(list_put, list_get),
    "array": Leak(array_put, array_get),
    "object": Leak(object_put, object_get),
    "typed list": Leak(typed_put, typed_get),
    "typed dict": Leak(typed_dict_put, typed_dict_get),
    "Python's generator": Leak(python_put, python_get),
    "environment": Leak(environment_put, environment_get),
    "file": Leak(file_put, file_get),
    "frame": Leak(frame_put, frame_get),
    "global": Leak(global_put, global_get),
    "default": Leak(default_put, list_get),
    "import": Leak(import_put, environment_get),
    "attribute": Leak(attribute_put, attribute_get),
    "getattr": Leak(getattr_put),
    "context": Leak(context_put, context_get, "read-only", True),
    "state": Leak(state_put, state_get, "read-only", True),
    "alias": Leak(alias_put, state_get, "read-only", True),
    "transpose": Leak(transpose_put, state_get, "read-only", True),
    "slice": Leak(slice_put, state_get, "read-only", True),
    "in place": Leak(inplace_put, state_get, "read-only", True),
    "loop": Leak(loop_put, state_get, "read-only", True),
    "flat": Leak(flat_put, state_get, "whitelist", True),
    "nditer": Leak(nditer_put, state_get, "whitelist", True),
    "fill": Leak(fill_put),
    "reshape": Leak(reshape_put),
    "ravel": Leak(ravel_put),
    "view": Leak(view_put),
    "add": Leak(add_put),
    "generator": Leak(generator_seed_put, generator_seed_get, "whitelist", True),
    "generator by another name": Leak(renamed_put, renamed_get, "whitelist", True),
    "C library": Leak(c_put, c_get, "whitelist", True),
    "objmode": Leak(objmode_put, objmode_get, "whitelist", True),
}
OTHERS = {
    "argument of a ufunc": argument_put,
    "argument of clip": clip_put,
    "argument of outer": outer_put,
    "sort": sort_put,
    "assignment": assign_put,
    "carray": carray_put,
    "vector of a frame": frame_vector_put,
    "print": print_put,
    "clock": clock_put,
    "error": error_put,
    "nested function": nested_put,
    "lambda": lambda_put,
    "comprehension": comprehension_put,
    "generator function": generator_put,
}
"""Functions that are refused; what they do is no way from `put` to `get`, or needs more."""


@jit
def quiet_act(c, s, t, x, z):
    return 0.5


@jit
def quiet_record(c, s, t, x, price, y, z):
    return s.theta


@jit
def quiet_learn(c, s, released, t):
    pass


QUIET = Functions(quiet_act, quiet_record, quiet_learn)


def refused(function, kinds=(State,), role="act"):
    """Return the error of a function; None if the whitelist accepts it."""
    own = function if isinstance(function, Deferred) else jit(function)
    try:
        purity.check_functions("agent", QUIET._replace(**{role: own}), tuple(kinds))
    except AgentError as error:
        return str(error)
    return None


def carried(put, get, s, x):
    """Return what `get` returns after the responses 0.25 and 0.75, twice."""
    answers = []
    for y in (0.25, 0.75) * 2:
        put(s, x, y)
        answers.append(get(s, x))
    return answers


def shows(answers):
    """Whether it tells the responses apart."""
    return answers[0] == answers[2] != answers[1] == answers[3]


@pytest.fixture
def uncached(monkeypatch):
    """Compile without a cache on disk, whose keys do not know of changed options."""
    monkeypatch.setattr(_jit, "cached", lambda compiled, function: compiled)


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_stopped(name, uncached):
    leak = LEAKS[name]
    kinds = (OddState,) if "another name" in name else (State,)
    if leak.measure == "whitelist":
        both = refused(leak.put, kinds), refused(leak.get, kinds)
        assert any(both) and "no memory besides the state" in next(filter(None, both))
        return
    assert refused(leak.put, kinds) is refused(leak.get, kinds) is None
    s, x = read_only(State(np.zeros(3))), read_only(np.zeros(3))
    # numba itself fails while it words the error for an operator in place
    with pytest.raises((numba.TypingError, AttributeError)):
        jit(leak.put)(s, x, 0.25)
    with pytest.raises(ValueError, match="read-only"):
        leak.put(s, x, 0.25)
    assert not s.theta.any() and not x.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_leaks_work_without_the_measure(name, uncached):
    """Without the whitelist: with read-only arrays; and without these: with writable ones."""
    leak = LEAKS[name]
    s, x = State(np.zeros(3)), np.zeros(3)
    if leak.measure == "whitelist" and leak.compiled:
        s, x = read_only(s), read_only(x)
    put, get = (numba.njit(leak.put), numba.njit(leak.get)) if leak.compiled else leak[:2]
    assert shows(carried(put, get, s, x))


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_refused(name):
    assert refused(OTHERS[name])


def test_memory_that_was_not_initialised_is_a_leak():
    assert "np.empty" in refused(empty_put).replace("numpy", "np")
    assert refused(empty_get)
    put, get = numba.njit(empty_put), numba.njit(empty_get)
    hits = 0
    for y in np.random.default_rng(0).random(1000):
        put(0, 0, y)
        hits += get(0, 0) == y
    assert hits > 500


def beyond_get(s, x):
    return s.theta[3]


def test_reads_beyond_an_array_are_a_leak_without_bounds_checks(uncached, monkeypatch):
    """The memory behind the array of one replicate is that of the next one."""
    memory = np.array([0.0, 0.0, 0.0, 0.25])
    s = read_only(State(memory[:3]))
    assert refused(beyond_get) is None
    with pytest.raises(IndexError):
        jit(beyond_get)(s, memory)
    with pytest.raises(IndexError):
        beyond_get(s, memory)
    monkeypatch.setattr(_jit, "checked", _jit.vectorised)
    without = jit(beyond_get)
    answers = []
    for y in (0.25, 0.75) * 2:
        memory[3] = y
        answers.append(without(s, memory))
    assert answers == [0.25, 0.75] * 2


def longer_get(s, x):
    out = np.zeros(40)
    np.maximum(x[:1], x[:1], out)
    return out[5]


def output_get(s, x):
    return np.sum(x, out=s.theta)


def value_get(s, x):
    f = np.maximum
    return f(x, x, s.theta)[0]


def unpacked_get(s, x):
    return np.maximum(*(x, x, s.theta))[0]


def test_reads_beyond_an_array_by_an_output_of_a_ufunc():
    """Compiled, the loop has the length of the output, and no bounds check."""
    memory = np.arange(40.0)
    x = read_only(memory[:2])
    assert "calls numpy.maximum with an output" in refused(longer_get)
    jumped = jit(longer_get)(0, x)
    assert jumped in (0.0, 5.0)
    for other in (output_get, value_get, unpacked_get):
        assert refused(other)


def longer_in_place(s, x):
    out = np.zeros(40)
    out += x
    return out[5]


def shorter_in_place(s, x):
    out = np.zeros(1)
    out *= x
    return out[0]


def rows_in_place(s, x):
    out = np.zeros((20, 2))
    out[1:] -= x
    return out[5, 0]


def power_in_place(s, x):
    out = np.ones(40)
    out **= x[:1]
    return out[5]


IN_PLACE = (longer_in_place, shorter_in_place, rows_in_place, power_in_place)


@pytest.mark.parametrize("function", IN_PLACE)
def test_an_operator_in_place_of_two_arrays_is_refused(function, uncached):
    """It is a ufunc with an output: the loop has its length, and no bounds check."""
    x = read_only(np.arange(40.0)[:2])
    assert refused(function) is None
    with pytest.raises(numba.TypingError, match=r"write a\[:\] = a \+ b"):
        jit(function)(0, x)


@pytest.mark.parametrize("function", [vectors.add, vectors.add_outer])
def test_helpers_refuse_rows_of_other_lengths(function, uncached):
    """Their shapes agree in the first axis, and each row would be added in place."""
    x = np.arange(40.0)[:2][None]
    out = np.zeros((1, 1, 40) if function is vectors.add_outer else (1, 40))
    arguments = (out, 1.0, x)
    with pytest.raises(numba.TypingError, match="in place"):
        shape_checked(function.py_func)(*arguments)


def test_operators_in_place_read_beyond_an_array_without_the_measure(uncached):
    x = read_only(np.arange(40.0)[:2])
    without = numba.njit(boundscheck=True)(longer_in_place)
    assert without(0, x) == 5.0


@jit
def safe_in_place(s, x):
    n = 1
    n += 2
    out = np.zeros(2)
    out += 1.0
    out *= x[1]
    out[0] += x[0]
    out[:] = out + x
    return out


@pytest.mark.slow
def test_operators_in_place_of_numbers_are_accepted(uncached):
    assert refused(safe_in_place) is None
    assert safe_in_place(0, read_only(np.array([1.0, 2.0]))).tolist() == [4.0, 4.0]
    out = safe_in_place.py_func(0, np.array([1.0, 2.0]))
    assert out.tolist() == [4.0, 4.0]


@jit
def types_act(c, s, t, x, z):
    return np.zeros(3, np.int64).sum() + np.float64(t) + np.clip(x, 0.0, np.pi).sum()


def test_types_and_constants_are_values():
    assert refused(types_act) is None


def beyond_put(s, x, y):
    s.theta[3] = y


def test_writes_beyond_an_array_are_a_leak_without_bounds_checks(uncached, monkeypatch):
    memory = np.zeros(4)
    s = State(memory[:3])
    assert refused(beyond_put) is None
    with pytest.raises(IndexError):
        jit(beyond_put)(s, memory, 0.25)
    monkeypatch.setattr(_jit, "checked", _jit.vectorised)
    jit(beyond_put)(s, memory, 0.25)
    assert memory[3] == 0.25


# From here on in the player.
class Known(NamedTuple):
    one: float


class Spy(Algorithm):
    """Asks 0.5; its subclasses ask a price that depends on the last response."""

    functions = QUIET
    State = State

    def plan(self, problem, curator):
        return Plan(curator.batch_sum(1, clip=1.0, what="nothing"), every=1000)

    def start(self, problem, sums):
        return Known(1.0), State(np.zeros(1))


def prices(algorithm, demands=(0.0, 1.0, 1.0, 0.0, 1.0)):
    """Return the prices after these responses of one customer each."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    algorithm.protects = ("joint", "user-round")
    agent = Player(algorithm)
    agent.set_up(problem.info, AgentStreams([0]), "rho=1")
    instance, answers = problem.instance([0]), []
    for demand in demands:
        context = instance.context()
        price = agent.act(context)
        feedback = instance.respond(price).feedback._replace(demand=np.array([demand]))
        agent.observe(context, price, feedback)
        instance.advance()
        answers.append(float(agent.act(instance.context())[0]))
    return answers


def follows(answers, demands=(0.0, 1.0, 1.0, 0.0, 1.0)):
    """Whether the price is a function of the last response, and not constant."""
    told = {d: {p for p, own in zip(answers, demands) if own == d} for d in (0.0, 1.0)}
    return all(len(p) == 1 for p in told.values()) and told[0.0] != told[1.0]


def generator_record(c, s, t, x, price, y, z):
    np.random.seed(int(y))
    return s.theta


def generator_act(c, s, t, x, z):
    return np.random.random()


def state_record(c, s, t, x, price, y, z):
    s.theta[0] = y
    return np.zeros(1)


def state_act(c, s, t, x, z):
    return 0.25 + 0.5 * s.theta[0]


@pytest.mark.slow
def test_the_player_applies_the_whitelist(uncached, monkeypatch):
    class Hidden(Spy):
        functions = Functions(jit(generator_act), jit(generator_record), quiet_learn)

    with pytest.raises(AgentError, match=r"generator_act' uses numpy.random"):
        prices(Hidden())
    monkeypatch.setattr(player, "check_functions", lambda *args: None)
    assert follows(prices(Hidden()))


@pytest.mark.slow
def test_the_player_hands_out_read_only_states(uncached, monkeypatch):
    class Writing(Spy):
        functions = Functions(jit(state_act), jit(state_record), quiet_learn)

    with pytest.raises(numba.TypingError):
        prices(Writing())

    class WritingAgain(Spy):
        functions = Functions(jit(state_act), jit(state_record), quiet_learn)

    monkeypatch.setattr(player, "read_only", lambda value: value)
    assert follows(prices(WritingAgain()))


def short_record(c, s, t, x, price, y, z):
    return np.zeros(0)


@pytest.mark.slow
def test_records_of_another_length_are_refused(uncached):
    """Otherwise the loop would copy memory that lies behind the record."""

    class Short(Spy):
        functions = Functions(quiet_act, jit(short_record), quiet_learn)

    with pytest.raises(IndexError, match="another length"):
        prices(Short())


@jit
def short_act(c, s, t, offer, z):
    return np.zeros(1, np.int64)


@pytest.mark.slow
def test_actions_of_another_length_are_refused(uncached):
    """Otherwise the loop would copy memory that lies behind the slate: what was freed last."""

    class ShortSlates(Spy):
        functions = Functions(short_act, quiet_record, quiet_learn)

    problem = dpb_gym.make_problem("DPB/Assortment-v0", horizon=50, n_items=6, capacity=3)
    agent = Player(ShortSlates())
    agent.protects = ("joint", "user-round")
    agent.set_up(problem.info, AgentStreams([0]), "rho=1")
    with pytest.raises(IndexError, match="another length"):
        agent.act(problem.instance([0]).context())


@jit
def far_act(c, s, t, x, z):
    return 1_000_000


@jit
def reward_record(c, s, t, x, k, reward, z):
    return s.theta + reward


@pytest.mark.slow
def test_rewards_of_candidates_that_do_not_exist_are_not_read(uncached):
    class Far(Spy):
        functions = Functions(far_act, reward_record, quiet_learn)

    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=50)
    agent = Player(Far())
    agent.protects = ("joint", "user-round")
    agent.set_up(problem.info, AgentStreams([0]), "rho=1")
    stretch = problem.instance([0]).move(20)
    with pytest.raises(ActionError, match=r"candidate 1000000 of replicate 0") as caught:
        agent.play(stretch.view())
    assert (caught.value.replicate, caught.value.round) == (0, 1)
    assert agent.plan.sums.rounds == 0


@jit
def curious_act(c, s, t, x, z, y):
    return y


@jit
def see_price(c, s, t, x, price):
    pass


@jit
def response_record(c, s, t, x, price, y, z):
    return np.full(1, 0.1 * (y + 1.0))


def test_no_function_but_record_gets_a_response(uncached):
    class Curious(Spy):
        functions = Functions(curious_act, quiet_record, quiet_learn)

    with pytest.raises(numba.TypingError, match="missing a required argument: 'y'"):
        prices(Curious())


@pytest.mark.slow
def test_protected_contexts_are_not_seen(monkeypatch, uncached):
    class Seeing(Spy):
        functions = Functions(quiet_act, quiet_record, quiet_learn, see_price)

    with pytest.raises(AgentError, match="leave out see"):
        prices(Seeing())
    monkeypatch.setattr(player, "RESPONSES", ("user-round",))
    assert prices(Seeing()) == [0.5] * 5


@pytest.mark.slow
def test_every_record_enters_once(uncached):
    """One by one and many at once; a round without a response has no record."""

    class Recording(Spy):
        functions = Functions(quiet_act, response_record, quiet_learn)

    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    agent = Player(Recording())
    agent.set_up(problem.info, AgentStreams([0, 1]))
    instance, expected = problem.instance([0, 1]), np.zeros(2)
    for t in range(10):
        context = instance.context()
        price = agent.act(context)
        feedback = instance.respond(price).feedback
        seen = np.array([True, t % 3 > 0])
        agent.observe(context, price, feedback._replace(observed=seen))
        expected += np.where(seen, 0.1 * (feedback.demand + 1.0), 0.0)
        instance.advance()
    stretch = instance.move(30)
    view = stretch.view()
    agent.play(view)
    expected += (0.1 * (view.rewards / 0.5 + 1.0)).sum(axis=0)
    total = agent.plan.sums.release()[:, 0]
    np.testing.assert_allclose(total, expected, rtol=1e-12)
    assert agent.rounds == 10 + view.shape[0]


# What the check looks at besides names.
@shape_checked
def unchecked(x):
    return x[100]


@jit
def calls_unchecked(c, s, t, x, z):
    return unchecked(x)


@jit
def helper(s):
    return LIST[0]


@jit
def calls_helper(c, s, t, x, z):
    return helper(s)


@jit
def calls_trusted(c, s, t, x, z):
    return dot(x, x) * PI_LIKE + OPTIONS[1]


@jit
def keeps_a_module(c, s, t, x, z):
    m = np
    return m.exp(1.0)


def closing(memory):
    @jit
    def act(c, s, t, x, z):
        return memory[0]

    return act


class Rich(NamedTuple("Rich", [("theta", Any)])):
    """A named tuple with a property, which is Python code."""

    @property
    def last(self):
        return LIST[-1]


@jit
def makes_rich(c, s, t, x, z):
    return Rich(x).last


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (calls_unchecked, "'unchecked', which has no bounds checks"),
        (calls_helper, "'helper' uses the global 'LIST'"),
        (keeps_a_module, "the module numpy as a value"),
        (closing([1.0]), "a closure"),
        (makes_rich, "no plain named tuple"),
        (quiet_act.py_func, None),
        (calls_trusted, None),
    ],
)
def test_calls_closures_and_aliases(function, text):
    message = refused(function)
    assert message is None if text is None else text in message


class Equal(ModuleType):
    """A module that equals every other one."""

    def __eq__(self, other):
        return True

    __hash__ = ModuleType.__hash__


@numba.njit
def memory(y):
    """Return the number that Python was given the time before."""
    with objmode(before="float64"):
        before = LIST[0]
        LIST[0] = y
    return before


def odd_act(c, s, t, x, z):
    return math.exp(abs(1.0)) + np.exp(2.0) + 7.0


def with_constant(value):
    """Return a function of which the constant 7 is another value."""
    code = odd_act.__code__
    constants = tuple(value if const == 7.0 else const for const in code.co_consts)
    return FunctionType(code.replace(co_consts=constants), {"np": np, "math": math})


def with_module():
    fake = Equal("numpy")
    fake.exp = memory
    return FunctionType(odd_act.__code__, {"np": fake, "math": math})


class Number(float):
    """A number with operators of its own."""


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (with_constant(7.5), None),
        (with_constant((1, slice(None, 2), "text", ...)), None),
        (with_constant(memory), "a constant of the type CPUDispatcher"),
        (with_constant((1.0, (memory,))), "a constant of the type tuple"),
        (with_constant(slice(memory)), "a constant of the type slice"),
        (with_constant(Number(7.0)), "a constant of the type Number"),
        (with_constant(odd_act.__code__), "defines a function"),
        (with_module(), "the module numpy; numpy and math are"),
    ],
)
def test_constants_and_modules_are_not_functions_in_disguise(function, text):
    message = refused(function)
    assert message is None if text is None else text in message


@pytest.mark.parametrize(
    ("module", "name"), [(np, "exp"), (math, "exp"), (builtins, "abs")], ids=str
)
def test_functions_of_python_and_numpy_are_the_usual_ones(module, name, monkeypatch):
    monkeypatch.setattr(module, name, memory)
    message = refused(FunctionType(odd_act.__code__, {"np": np, "math": math}))
    monkeypatch.undo()
    assert f"uses {module.__name__}.{name}, which was replaced" in message


def test_defaults_are_exact_numbers():
    for value, refuses in ((1.0, False), (np.float32(1.0), False), (Number(1.0), True)):
        function = FunctionType(quiet_act.py_func.__code__.replace(), {})
        function.__defaults__ = (value,)
        assert (refused(function) is not None) == refuses, value


def test_a_trusted_function_cannot_be_replaced(monkeypatch):
    fake = shape_checked(lambda a, b: LIST[0])
    fake.py_func.__module__ = dot.py_func.__module__
    fake.py_func.__name__ = "dot"
    monkeypatch.setitem(calls_trusted.py_func.__globals__, "dot", fake)
    purity.checked.cache_clear()
    assert "'dot', which has no bounds checks" in refused(calls_trusted)
    purity.checked.cache_clear()


@pytest.mark.parametrize("name", ["flat", "ctypes", "at", "reduce", "fill", "format"])
def test_fields_may_not_have_names_of_numpy(name):
    kind = NamedTuple("Kind", [(name, Any)])
    assert f"has a field {name!r}" in refused(quiet_act, (kind,))


class Wide(NamedTuple):
    memory: Any


def memory_put(c, s, t, x, price, y, z):
    c.memory[0] = y
    return np.zeros(1)


def memory_act(c, s, t, x, z):
    return 0.25 + 0.5 * c.memory[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory",
    [TYPED, TYPED_DICT, bytearray(8), (1.0, TYPED), SRAND, quiet_act, OBJECT, np.array([None])],
)
def test_what_is_known_is_no_memory(memory, uncached, monkeypatch):
    """A typed list in c can be written by `record`; a function of C has a state of its own."""

    class Remembering(Spy):
        functions = Functions(jit(memory_act), jit(memory_put), quiet_learn)

        def start(self, problem, sums):
            return Wide(memory), State(np.zeros(1))

    with pytest.raises(AgentError, match="start returns named tuples of numbers"):
        prices(Remembering())
    if memory is TYPED:
        monkeypatch.setattr(player, "check_values", lambda *args: None)
        assert follows(prices(Remembering()))


@pytest.mark.slow
def test_functions_are_those_that_were_checked(uncached):
    """Also where `functions_for` returns others when it is called again."""

    class Changing(Spy):
        calls = 0

        def functions_for(self, problem):
            Changing.calls += 1
            return QUIET if Changing.calls == 1 else QUIET._replace(act=jit(generator_act))

    answers = prices(Changing())
    assert answers == [0.5] * 5

    class Later(Changing):
        calls = 1

    Changing.calls = 1
    with pytest.raises(AgentError, match=r"uses numpy.random"):
        prices(Changing())


def test_a_loaded_player_checks_its_functions(uncached):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    algorithm = Spy()
    algorithm.protects = ("joint", "user-round")
    agent = Player(algorithm)
    agent.set_up(problem.info, AgentStreams([0]), "rho=1")
    del agent._loops
    algorithm.functions = QUIET._replace(act=jit(generator_act))
    with pytest.raises(AgentError, match=r"uses numpy.random"):
        agent.act(problem.instance([0]).context())


class Forged(Deferred):
    """A function that compiles another one than it shows."""

    @property
    def compiled(self):
        return numba.njit(generator_act)


def test_a_function_compiles_its_own_code():
    forged = Forged(quiet_act.py_func, bounds=True)
    changed = jit(quiet_act.py_func)
    changed.compiled = numba.njit(generator_act)
    unbounded = jit(quiet_act.py_func)
    unbounded.compiled = numba.njit(quiet_act.py_func)
    for function in (forged, changed, unbounded):
        assert "not what dpb_gym.play.jit returned" in refused(function)
    used = jit(quiet_act.py_func)
    used(0, 0, 0, np.zeros(1), np.zeros(1))
    assert refused(used) is None


class Odd(NamedTuple("Odd", [*zip(Functions._fields, [Any] * len(Functions._fields))])):
    pass


def test_functions_are_of_their_own_class():
    with pytest.raises(AgentError, match=r"must be a dpb_gym.play.Functions"):
        purity.check_functions("agent", Odd(*QUIET), (State,))


class Keeping:
    """A cap, a scale or a number of another package, which sees records."""

    def __init__(self):
        self.seen = []

    def admit(self, users, observed):
        return observed

    def scale(self, users, observed, rows):
        self.seen.append(rows.copy())
        return np.ones(len(rows))

    def __rmod__(self, t):
        return 1


@pytest.mark.parametrize("field", ["cap", "scale", "every", "ends", "directed"])
def test_code_of_others_gets_no_records(field, uncached):
    class Planned(Spy):
        def plan(self, problem, curator):
            value = (Keeping(),) if field == "ends" else Keeping()
            return super().plan(problem, curator)._replace(**{field: value})

    with pytest.raises(AgentError, match=r"another package|int, switches bool"):
        prices(Planned())


class Raw:
    """No releaser: it returns raw sums."""

    shape = SimpleNamespace(width=1, symmetric=0)

    def __init__(self):
        self.total = 0.0

    def add(self, rows):
        self.total = self.total + rows

    def release(self):
        return self.total


class LeakySum(Sum):
    """A releaser of another package."""


@pytest.mark.parametrize("kind", ["object", "other curator", "class", "mechanism"])
def test_records_enter_releasers_of_the_curator_only(kind, uncached):
    class Planned(Spy):
        def plan(self, problem, curator):
            own = curator.batch_sum(1, clip=1.0, what="nothing")
            if kind == "object":
                return Plan(Raw())
            if kind == "class":
                options = {"clip": 1.0, "what": "mine", "times": OnRequest()}
                return Plan(curator._create(LeakySum, 1, options))
            if kind == "mechanism":
                behind(own).mechanism = Raw()
                return Plan(own)
            other = Curator(None, ("joint", "user-round"), replicates=1)
            return Plan(other.batch_sum(1, clip=1.0))

    with pytest.raises(AgentError, match=r"curator it gets made|code of another package"):
        prices(Planned())


@pytest.mark.parametrize("role", Functions._fields)
def test_every_function_is_checked(role):
    """Also those that a plan calls between rounds: they run when responses are in memory."""
    assert "uses the global 'LIST'" in refused(list_get, role=role)


def test_functions_must_be_decorated():
    with pytest.raises(AgentError, match=r"act must be decorated with dpb_gym.play.jit"):
        purity.check_functions("agent", QUIET._replace(act=generator_act), (State,))


@jit
def first_act(c, s, t, x, z):
    return 0


@jit
def turned_record(c, s, t, x, k, reward, z):
    return 1.0, (2.0 * reward - 1.0) * x[k]


@pytest.mark.slow
@pytest.mark.parametrize("stretch", [False, True])
def test_public_directions_do_not_depend_on_responses(stretch, uncached):
    """The number 1 has a range, and its direction could turn round with the response."""

    class Turning(Spy):
        protects = ("central", "reward")
        functions = Functions(first_act, turned_record, quiet_learn)

        def plan(self, problem, curator):
            sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0), cumulative=True)
            return Plan(sums, directed=True, every=1000)

    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=50)
    for budget, sign in (("rho=1", -1.0), (None, None)):
        agent = Player(Turning())
        agent.set_up(problem.info, AgentStreams([0]), budget)
        instance = problem.instance([0])
        shown, rewards = [], []
        if stretch:
            view = instance.move(20).view()
            agent.play(view)
            shown, rewards = view.context.features[:, 0, 0], view.reward[:, 0, 0]
        else:
            for _ in range(20):
                context = instance.context()
                action = agent.act(context)
                feedback = instance.respond(action).feedback
                agent.observe(context, action, feedback)
                instance.advance()
                shown.append(context.features[0, 0])
                rewards.append(feedback.reward[0])
        assert len({*np.round(rewards, 6)}) > 1
        # with a budget the direction of the response 0, which is -x
        signs = 2.0 * np.array(rewards) - 1.0 if sign is None else np.full(20, sign)
        expected = (signs[:, None] * np.array(shown, float)).sum(axis=0)
        np.testing.assert_allclose(behind(agent.plan.sums)._total[0], expected, rtol=1e-6)


def test_a_private_helper_is_not_trusted(monkeypatch):
    """It relies on the checks of its caller, and would read beyond its arrays."""
    monkeypatch.setitem(calls_trusted.py_func.__globals__, "dot", _among_equals)
    purity.checked.cache_clear()
    assert "'dot', which has no bounds checks" in refused(calls_trusted)
    purity.checked.cache_clear()


M, V = np.eye(3), np.ones(3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", (V, 1.0, V)),
        ("add_outer", (M, 1.0, V)),
        ("copy_to", (2.0 * V, V)),
        ("put_sum", (V, V, V)),
        ("copy_matrix", (2.0 * M, M)),
        ("grow_inverse", (M, V)),
        ("grow_factor", (M, V)),
    ],
)
def test_helpers_do_not_write_into_what_is_read_only(name, arguments):
    arguments = read_only(tuple(np.copy(x) if np.ndim(x) else x for x in arguments))
    before = [np.copy(x) for x in arguments]
    with pytest.raises((numba.TypingError, AttributeError)):
        getattr(vectors, name)(*arguments)
    assert all(map(np.array_equal, arguments, before))


def test_a_failed_factor_is_no_memory():
    assert np.isnan(vectors.solved(-M, V)).all()
    np.testing.assert_allclose(vectors.solved(2.0 * M, V), 0.5 * V)
