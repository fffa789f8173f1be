"""Loops over rounds and replicates around the functions of an `Algorithm`, as source text.

Numba caches a compiled function with the functions that it calls as globals. So algorithms with
other functions get loops of their own, which are written here once: `loops` executes `TEXT` with
the functions as globals, under the name of their file.

R is the state as read-only arrays and S the same memory, writable. `act`, `record` and `due`
receive R, so they cannot write. The contexts are read-only arrays, too, which they read in place.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from dpb_gym.kernels._jit import vectorised
from dpb_gym.kernels.borrowing import borrowed
from dpb_gym.kernels.continual import OK, add_scaled_one
from dpb_gym.kernels.deferred import Deferred
from dpb_gym.kernels.demand_models import demand_outcome

IMPOSSIBLE = -1
"""Status of a price outside of [0, 1], which is none of `dpb_gym.kernels.continual`."""
TEXT = '''
@vectorised
def act_rounds(c, R, t, contexts, z, out):
    """Write the actions of n rounds, ``(n, B)`` or ``(n, B, K)``."""
    c, R, contexts, z = borrowed((c, R, contexts, z))
    for b in range(out.shape[1]):
        s = State({lanes_R})
        for i in range(out.shape[0]):
            action = act(c, s, t + i, {x}, z[i, b])
            {put}


@vectorised
def record_rounds(
    c, R, t, contexts, actions, responses, observed, z, values, rows, others
):
    """Write the records of n rounds; zeros where there is no response."""
    c, R, contexts, z = borrowed((c, R, contexts, z))
    actions, rows, others = borrowed((actions, rows, others))
    for b in range(actions.shape[1]):
        s = State({lanes_R})
        for i in range(actions.shape[0]):
            if observed[i, b]:
                {record}
            else:
                values[i, b] = 0.0
                for j in range(rows.shape[2]):
                    rows[i, b, j] = 0.0
                for j in range(others.shape[2]):
                    others[i, b, j] = 0.0


@vectorised
def learn_lanes(c, S, sums, std, record_std, numbers, records, second, t, due):
    """Update the states of the replicates in `due` with a release."""
    c, S, sums, second = borrowed((c, S, sums, second))
    for b in range(due.shape[0]):
        if due[b]:
            given = Released(sums[b], std, record_std, numbers[b], records[b], second[b])
            learn(c, State({lanes_S}), given, t)
'''
PRICES = '''

@vectorised
def play_prices(
    c, R, S, t, contexts, z, repeats, answers, actions, played, demand, rewards,
    expected, values, rows, others
):
    """Play rounds of prices, up to the first one after which a release is due.

    Returns:
        `OK` or `IMPOSSIBLE`, and the number of rounds before one with an impossible price.
    """
    c, R, S, contexts = borrowed((c, R, S, contexts))
    z, repeats, answers, rows, others = borrowed((z, repeats, answers, rows, others))
    features, theta, model, zeta, low, high, uniform = answers
    stop = False
    for i in range(actions.shape[0]):
        for b in range(actions.shape[1]):
            r = State({lanes_R})
            s = State({lanes_S})
            action = act(c, r, t + i, {x}, z[i, b])
            actions[i, b] = action
            if not (action >= 0.0 and action <= 1.0):
                return IMPOSSIBLE, i
            price = action if action >= low else low
            price = price if price <= high else high
            played[i, b] = price
            bought, rewards[i, b], expected[i, b] = demand_outcome(
                features[i], theta, b, price, model, zeta, uniform[i, b]
            )
            demand[i, b] = bought
            {price_record}
            {price_see}
            {price_end}
    return OK, actions.shape[0]
'''
SEE = '''

@vectorised
def see_rounds(c, S, t, contexts, actions, observed):
    """Update the states with the public part of one round that has a response."""
    c, S, contexts, actions = borrowed((c, S, contexts, actions))
    for b in range(actions.shape[1]):
        s = State({lanes_S})
        for i in range(actions.shape[0]):
            if observed[i, b]:
                see(c, s, t + i, {x}, actions[i, b])
'''
TABLE = '''

@vectorised
def play_table(
    c, R, S, t, contexts, z, repeats, rewards, observed, follow, totals, sums, clip,
    counts, counted, scratch, actions, values, rows, others
):
    """Play rounds with a table of the candidates' rewards.

    With `follow` records are added to the exact `sums`, which `learn` receives after every round.
    Otherwise it stops after the first round in which a release is due.

    Returns:
        A status of `dpb_gym.kernels.continual`, the number of rounds played, and whether all
        actions exist.
    """
    low, high = clip
    all_exist = True
    c, R, S, contexts = borrowed((c, R, S, contexts))
    z, repeats, rewards, observed = borrowed((z, repeats, rewards, observed))
    totals, sums, scratch, rows, others = borrowed((totals, sums, scratch, rows, others))
    {table_loops}
            action = act(c, r, t + i, {x}, z[i, b])
            actions[i, b] = action
            # the player refuses other actions
            exists = action >= 0 and action < observed.shape[2]
            all_exist = all_exist and exists
            if exists and observed[i, b, action]:
                {table_record}
                {table_see}
            else:
                values[i, b] = 0.0
                for j in range(rows.shape[2]):
                    rows[i, b, j] = 0.0
                for j in range(others.shape[2]):
                    others[i, b, j] = 0.0
            {table_end}
    return OK, actions.shape[0], all_exist
'''
# one replicate after the other, whose state stays in cache
LANES = """for b in range(actions.shape[1]):
        r = State({lanes_R})
        s = State({lanes_S})
        for i in range(actions.shape[0]):"""
# one round after the other, because a release in one replicate stops all
ROUNDS = """stop = False
    for i in range(actions.shape[0]):
        for b in range(actions.shape[1]):
            r = State({lanes_R})
            s = State({lanes_S})"""
FOLLOW = """if follow:
                status, beyond = add_scaled_one(
                    values[i, b], rows[i, b], low, high, 1.0, scratch, totals[b]
                )
                if status != OK:
                    return status, i, all_exist
                counts[b] += beyond
                counted[b] += 1.0 if exists and observed[i, b, action] else 0.0
                given = Released(sums[b], 0.0, 0.0, t + i - 1, counted[b], sums[b, :0])
                learn(c, s, given, t + i)"""
STOP = """if due(c, r, t + i):
                stop = True
        if stop:
            return OK, i + 1{and_more}"""
DUE = '''

@vectorised
def due_lanes(c, R, t, out):
    """Write which replicates have a release after round t."""
    c, R = borrowed((c, R))
    for b in range(out.shape[0]):
        out[b] = due(c, State({lanes_R}), t)
'''
IMAGE = '''

@vectorised
def image_lanes(c, S, t, due, matrices, norms):
    """Write the matrices of which a release is an image, of the replicates in `due`."""
    for b in range(due.shape[0]):
        if due[b]:
            matrix, norms[b] = image(c, State({lanes_S}), t)
            same_length(matrix.shape[0], matrices.shape[1])
            same_length(matrix.shape[1], matrices.shape[2])
            for j in range(matrices.shape[1]):
                for k in range(matrices.shape[2]):
                    matrices[b, j, k] = matrix[j, k]
'''


SHARES = '''

@vectorised
def shares_rounds(c, R, t, contexts, out):
    """Write the probabilities of the candidates of n rounds, ``(n, B, m)``."""
    c, R, contexts = borrowed((c, R, contexts))
    for b in range(out.shape[1]):
        s = State({lanes_R})
        for i in range(out.shape[0]):
            chances = shares(c, s, t + i, {x})
            same_length(chances.shape[0], out.shape[2])
            for k in range(out.shape[2]):
                out[i, b, k] = chances[k]
'''
ADOPT = '''

@vectorised
def adopt_lanes(c, S, second, t, due):
    """Update the states of the replicates in `due` with a release of the second sums."""
    for b in range(due.shape[0]):
        if due[b]:
            adopt(c, State({lanes_S}), second[b], t)
'''


@vectorised
def same_length(length, wanted):
    """Raise IndexError unless a function returned as many numbers as it should."""
    if length != wanted:
        raise IndexError("an action, a record or an image has another length than planned")


def _record(directed: bool, second: bool, public: bool, index: str, pad: str) -> str:
    """Return code that writes a record; a public direction is that of the response 0."""
    names = ["value"] * directed + ["row"] + ["other"] * second
    lines = [f"{', '.join(names)} = record(c, {index})"]
    if public:
        # the sensitivity of a number does not cover a direction that depends on it
        lines.append(f"row = record(c, {index.replace(', 1 * ', ', 0 * ')})[1]")
    lines += ["values[i, b] = value"] * directed
    lines += [
        "same_length(row.shape[0], rows.shape[2])",
        "for j in range(rows.shape[2]):",
        "    rows[i, b, j] = row[j]",
    ]
    if second:
        lines += [
            "same_length(other.shape[0], others.shape[2])",
            "for j in range(others.shape[2]):",
            "    others[i, b, j] = other[j]",
        ]
    return f"\n{pad}".join(lines)


def compiled(function: Any) -> Any:
    """Return the dispatcher of a deferred function; other values as they are."""
    return function.compiled if isinstance(function, Deferred) else function


VALUES = (type(None), bool, int, float, str)
"""Types whose values distinguish the functions that were made around them."""


class Place(NamedTuple):
    """Where the loops of some functions are defined.

    Attributes:
        module: Name of their module.
        file: Its file, which the cache of compiled functions goes by.
        prefix: First part of their names.
    """

    module: str
    file: str
    prefix: str


@cache
def place_of(algorithm: type, functions: Any) -> Place:
    """Return the place of the loops of an algorithm.

    Algorithms with the same functions share it, and so what is compiled: it is that of `act` if
    this is of the same package as the algorithm, and of the algorithm otherwise. Functions that
    were made around other functions or arrays are of their algorithm alone.
    """
    act = functions.act.py_func
    package = algorithm.__module__.partition(".")[0]
    # the cache knows a function by its file, name and code, and not by the functions that it calls
    parts: list[tuple[Any, ...]] = []
    shared = package != "__main__" and act.__module__.partition(".")[0] == package
    for own in functions:
        if own is None:
            parts.append(())
            continue
        plain = own.py_func
        c = plain.__code__
        inside = [cell.cell_contents for cell in plain.__closure__ or ()]
        values = [value for value in inside if type(value) in VALUES]
        shared = shared and len(values) == len(inside)
        parts.append((plain.__module__, plain.__qualname__, values))
        parts.append((c.co_code, c.co_consts, c.co_names, c.co_varnames))
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    if shared:
        return Place(act.__module__, act.__code__.co_filename, f"{act.__name__}_{digest}_")
    file = inspect.getsourcefile(algorithm) or "<algorithm>"
    return Place(algorithm.__module__, file, f"{algorithm.__name__}_{digest}_")


def loops(
    place: Place,
    functions: Any,
    state: Any,
    released: type,
    offer: type,
    fields_of_context: int,
    slate: bool,
    table: bool,
    directed: bool,
    second: bool,
    follow: bool,
    public: bool,
    prices: bool,
) -> Any:
    """Return the compiled loops of an algorithm, as attributes of one object.

    Args:
        place: Where they are defined.
        functions: Functions of an `Algorithm`.
        state: Class of the state.
        released: Class of the releases that `learn` receives.
        offer: Class of a context of two fields.
        fields_of_context: Number of fields of a context, 1 or 2.
        slate: Whether actions are slates.
        table: Whether rewards come as a table of all candidates.
        directed: Whether records are numbers with directions.
        second: Whether there are second sums.
        follow: Whether exact sums of the records can be followed round by round.
        public: Whether directions of records are public, so that they cannot be responses.
        prices: Whether actions are prices.
    """
    fields = state._fields
    deep = " " * 12
    deeper = " " * 16
    stops = functions.due is not None and functions.adopt is None
    x = "contexts[0][i, b]"
    if fields_of_context == 2:
        x = f"Offer({x}, contexts[1][i, b])"
    parts = {
        "lanes_R": ", ".join(f"R.{name}[b]" for name in fields) + ",",
        "lanes_S": ", ".join(f"S.{name}[b]" for name in fields) + ",",
        "x": x,
        "put": "same_length(action.shape[0], out.shape[2])\n            "
        "for j in range(out.shape[2]):\n                out[i, b, j] = action[j]"
        if slate
        else "out[i, b] = action",
        "record": _record(
            directed,
            second,
            public,
            f"s, t + i, {x}, actions[i, b], 1 * responses[i, b], z[i, b]",
            deeper,
        ),
        "table_record": _record(
            directed,
            second,
            public,
            f"r, t + i, {x}, action, 1 * rewards[i, b, action], repeats[i, b]",
            deeper,
        ),
        "price_record": _record(
            directed, second, public, f"r, t + i, {x}, price, 1 * bought, repeats[i, b]", deep
        ),
        "price_see": "pass" if functions.see is None else f"see(c, s, t + i, {x}, price)",
        "price_end": STOP.format(and_more="") if stops else "pass",
        "table_see": "pass" if functions.see is None else f"see(c, s, t + i, {x}, action)",
        "table_end": STOP.format(and_more=", all_exist") if stops else FOLLOW if follow else "pass",
    }
    optional = (
        (SEE, functions.see),
        (TABLE, table),
        (PRICES, prices),
        (DUE, functions.due),
        (IMAGE, functions.image),
        (ADOPT, functions.adopt),
        (SHARES, functions.shares),
    )
    text = TEXT + "".join(part for part, wanted in optional if wanted)
    text = text.replace("{table_loops}", ROUNDS if stops else LANES)
    for name, code in parts.items():
        text = text.replace(f"{{{name}}}", code)
    names = {
        "__name__": place.module,
        "vectorised": vectorised,
        "State": state,
        "Released": released,
        "OK": OK,
        "IMPOSSIBLE": IMPOSSIBLE,
        "add_scaled_one": add_scaled_one,
        "borrowed": borrowed,
        "demand_outcome": demand_outcome,
        "same_length": same_length,
        **{name: compiled(function) for name, function in functions._asdict().items()},
    }
    if fields_of_context == 2:
        names["Offer"] = offer
    prefix = place.prefix
    exec(compile(text.replace("def ", f"def {prefix}"), place.file, "exec"), names)
    attributes = {
        name.removeprefix(prefix): f for name, f in names.items() if name.startswith(prefix)
    }
    return SimpleNamespace(**attributes)
