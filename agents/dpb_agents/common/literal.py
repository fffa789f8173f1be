"""Printed forms of a paper that `calibration="paper"` departs from unless they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpb_gym.errors import ParameterError


def literal_forms(
    given: Collection[str], known: Mapping[str, str], printed: bool
) -> tuple[str, ...]:
    """Return the names of an agent's parameter `literal`, sorted.

    Args:
        given: The names.
        known: What each name stands for.
        printed: Whether the agent has the printed calibration.

    Raises:
        ParameterError: If a name is unknown, or the calibration is another one.
    """
    names = {given} if isinstance(given, str) else set(given)
    unknown = sorted(names - set(known))
    if unknown:
        raise ParameterError(f"literal takes names of {sorted(known)}, got {unknown}")
    if names and not printed:
        raise ParameterError(f"literal={sorted(names)} are printed forms: calibration='paper'")
    return tuple(sorted(names))
