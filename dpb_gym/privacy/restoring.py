"""Check of a curator that was read from a file against one that was planned again.

What decides privacy is not believed. The agent plans its releasers again, from its parameters, the
problem and the budget. The loaded curator must have the same releasers, with the same noise scales,
bounds, plans and charges. `Releaser.evolves` names what a run changes: raw sums, releases, counts.
That is data, of which only type and shape are checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np

from dpb_gym.errors import CheckpointError, shown
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.releasers.releaser import Handle, Releaser, behind

ABSENT = object()
OURS = __name__.partition(".")[0] + "."


def check_restored(loaded: Any, fresh: Any) -> None:
    """Raise CheckpointError unless two agents have curators with the same plans and charges.

    Args:
        loaded: The agent of a file.
        fresh: The same agent, set up again with the budget of the loaded one.
    """
    curators = dict(_curators(loaded, "the agent"))
    expected = dict(_curators(fresh, "the agent"))
    if curators.keys() != expected.keys():
        different = sorted(curators.keys() ^ expected.keys())
        raise CheckpointError(f"{different[0]}: there is a curator in one of the two only")
    comparison = _Comparison()
    for path, curator in curators.items():
        comparison.curators(curator, expected[path], path)
    # a releaser outside of the curators would release without a charge
    for part in _parts(loaded):
        if isinstance(part, (Curator, Releaser)) and id(part) not in comparison.checked:
            raise CheckpointError(
                f"a {type(part).__name__} is none of those that `begin` makes by the curator"
            )


def check_exact(loaded: Any) -> None:
    """Raise CheckpointError if an agent without a budget has charges or releasers with noise."""
    own = vars(loaded).get("curator")
    for part in _parts(loaded):
        if isinstance(part, (Curator, Releaser)) and own is None:
            raise CheckpointError("an agent without a curator has one in its parts")
        if isinstance(part, Curator) and (part.budget is not None or part.ledger.entries):
            raise CheckpointError("an agent without a budget has a curator that was charged")
        if isinstance(part, Releaser) and part.rho is not None:
            raise CheckpointError(f"{part.what}: noise without a budget")


class _Comparison:
    """Compares curators and everything that they have.

    Attributes:
        checked: Curators and releasers that were compared, by `id`.
    """

    def __init__(self) -> None:
        self.checked: dict[int, Any] = {}
        self._seen: set[tuple[int, int]] = set()

    def curators(self, loaded: Curator, expected: Curator, path: str) -> None:
        self._attributes(loaded, expected, path)

    def _differ(self, path: str, loaded: Any, expected: Any) -> CheckpointError:
        return CheckpointError(
            f"{path} is {shown(loaded)}, but {shown(expected)} follows from budget and plan"
        )

    def same(self, loaded: Any, expected: Any, path: str) -> None:
        """Raise CheckpointError unless two values are equal but for what evolves in them."""
        loaded, expected = behind(loaded), behind(expected)
        kind = type(expected)
        if type(loaded) is not kind:
            raise self._differ(path, loaded, expected)
        if loaded is expected or kind in (np.random.Generator, np.dtype):
            return
        if isinstance(expected, (int, float, str, bytes, np.generic)):
            if repr(loaded) != repr(expected):  # which tells 0.0 from -0.0, and NaN equals NaN
                raise self._differ(path, loaded, expected)
        elif isinstance(expected, np.ndarray):
            same = (loaded.dtype, loaded.shape) == (expected.dtype, expected.shape)
            if not same or loaded.tobytes() != expected.tobytes():
                raise self._differ(path, loaded, expected)
        elif isinstance(expected, (list, tuple, deque)):
            if len(loaded) != len(expected):
                raise self._differ(path, loaded, expected)
            for number, (one, other) in enumerate(zip(loaded, expected)):
                self.same(one, other, f"{path}[{number}]")
        elif isinstance(expected, Mapping):
            if list(loaded) != list(expected):
                raise self._differ(path, list(loaded), list(expected))
            for key in expected:
                self.same(loaded[key], expected[key], f"{path}[{shown(key)}]")
        elif isinstance(expected, (set, frozenset, range)):
            if loaded != expected:
                raise self._differ(path, loaded, expected)
        elif isinstance(expected, Ledger):
            self._ledgers(loaded, expected, path)
        else:
            self._attributes(loaded, expected, path)

    def _ledgers(self, loaded: Ledger, expected: Ledger, path: str) -> None:
        """Compare two ledgers; the loaded one can have more charges and disclosures."""
        for name in ("budget", "notion", "unit", "relation", "asked"):
            self.same(getattr(loaded, name), getattr(expected, name), f"{path}.{name}")
        for name in ("entries", "disclosed"):
            own, planned = getattr(loaded, name), getattr(expected, name)
            if type(own) is not list:
                raise self._differ(f"{path}.{name}", own, planned)
            self.same(own[: len(planned)], planned, f"{path}.{name}")
        later = loaded.entries[len(expected.entries) :]
        if later and "declared" not in str(loaded.basis):  # by `Curator.charge`, after `begin`
            raise self._differ(f"{path}.entries", loaded.entries, expected.entries)
        if not all(type(each) is type(loaded.entries[0]) for each in later):
            raise self._differ(f"{path}.entries", later, [])
        if not all(type(each) is str for each in loaded.disclosed):
            raise self._differ(f"{path}.disclosed", loaded.disclosed, expected.disclosed)
        if not later:
            self.same(loaded.basis, expected.basis, f"{path}.basis")

    def _attributes(self, loaded: Any, expected: Any, path: str) -> None:
        """Compare two objects of one class by their attributes."""
        if isinstance(expected, (Curator, Releaser)):
            known = self.checked.get(id(loaded))
            if known is not None and known is not expected:
                raise CheckpointError(f"{path} is another {type(loaded).__name__} than planned")
            self.checked[id(loaded)] = expected
        # objects refer to each other in circles
        pair = (id(loaded), id(expected))
        if pair in self._seen:
            return
        self._seen.add(pair)
        if type(loaded) is not type(expected):
            raise self._differ(path, loaded, expected)
        evolves = evolving(type(expected))
        own, planned = _listed(loaded), _listed(expected)
        if isinstance(expected, Curator):  # whose ledger exists from its first use
            own["ledger"], planned["ledger"] = loaded.ledger, expected.ledger
        for name in sorted(own.keys() | planned.keys()):
            one, other = own.get(name, ABSENT), planned.get(name, ABSENT)
            where = f"{path}.{name}"
            if name in evolves or f"{name}+" in evolves:
                counts = isinstance(expected, Releaser) or OURS in type(expected).__module__
                self._evolved(one, other, where, grows=f"{name}+" in evolves, counts=counts)
            elif one is ABSENT or other is ABSENT:
                raise CheckpointError(f"{where}: there is one in one of the two plans only")
            elif f"{name}.scales" in evolves:
                for part in ("ends", "weights", "carry"):
                    self.same(getattr(one, part), getattr(other, part), f"{where}.{part}")
            else:
                self.same(one, other, where)

    def _evolved(self, loaded: Any, expected: Any, path: str, *, grows: bool, counts: bool) -> None:
        """Check type and shape of data, and that integers are not negative if they are counts."""
        least = min(0, expected) if isinstance(expected, (int, np.integer)) else 0
        if isinstance(loaded, (int, np.integer)) and loaded < least:
            raise CheckpointError(f"{path} is {loaded}; a count is at least 0")
        integers = isinstance(loaded, np.ndarray) and loaded.dtype.kind == "i"
        if counts and integers and (loaded < 0).any():
            raise CheckpointError(f"{path} has a negative count")
        if loaded is ABSENT or expected is ABSENT or loaded is None or expected is None:
            return
        if type(loaded) is not type(expected):
            raise self._differ(path, loaded, expected)
        if isinstance(expected, np.ndarray):
            shape = loaded.shape[: 1 if grows else None]
            if (loaded.dtype, loaded.ndim) != (expected.dtype, expected.ndim) or shape != (
                expected.shape[: len(shape)]
            ):
                raise CheckpointError(
                    f"{path} is an array {loaded.dtype} {loaded.shape}, expected {expected.dtype} "
                    f"{expected.shape}"
                )


def evolving(kind: type) -> set[str]:
    """Return the names of attributes that a run changes, of a class and its bases."""
    names = set(vars(kind).get("evolves", ()))
    return names.union(*map(evolving, kind.__bases__))


def _listed(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, also those in slots of a dataclass."""
    if not hasattr(value, "__dict__") and is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(vars(value))


def _curators(agent: Any, path: str) -> Iterator[tuple[str, Curator]]:
    """Yield the curators of an agent and of the agents in its attributes, with their paths."""
    for name, value in vars(agent).items():
        if isinstance(value, Curator):
            yield f"{path}.{name}", value
        inner = list(value) if isinstance(value, (list, tuple)) else [value]
        for number, each in enumerate(inner):
            if each is agent or isinstance(each, Handle) or not hasattr(each, "__dict__"):
                continue
            if isinstance(vars(each).get("curator"), Curator):
                yield from _curators(each, f"{path}.{name}[{number}]")


def _parts(value: Any) -> Iterator[Any]:
    """Yield every object that can be reached from a value that was read from a file."""
    waiting, seen = [value], set()
    while waiting:
        part = behind(waiting.pop())
        if id(part) in seen or isinstance(part, (type, ModuleType, np.ndarray)):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, (list, tuple, deque)):
            waiting += part
        elif hasattr(part, "__dict__"):
            waiting += vars(part).values()
