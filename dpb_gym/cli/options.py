"""What several commands read from their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.evaluation.yamlfile import parse_yaml
from dpb_gym.privacy import Budget


def read_budget(rho: float | None, epsilon: float | None, delta: float | None) -> Budget | None:
    """The budget that the options name, None if they name none.

    Raises:
        BudgetError: If they contradict each other, or a number is out of range.
    """
    if rho is not None:
        if epsilon is not None or delta is not None:
            raise BudgetError("give either --rho, or --epsilon and --delta")
        return Budget.zcdp(rho)
    if (epsilon is None) != (delta is None):
        raise BudgetError("--epsilon and --delta belong together")
    if epsilon is None or delta is None:
        return None
    return Budget.approx(epsilon, delta)


def read_settings(given: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE settings; values are read as YAML.

    Raises:
        ParameterError: If one has another form.
    """
    found: dict[str, Any] = {}
    for setting in given:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ParameterError(f"--set wants KEY=VALUE or AGENT.KEY=VALUE, got {setting!r}")
        try:
            found[key.strip()] = parse_yaml(text)
        except ValueError as error:
            raise ParameterError(f"--set {setting!r}: not a value: {error}") from None
    return found
