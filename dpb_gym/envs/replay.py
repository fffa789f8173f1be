"""Loads real ratings for the replay environments."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dpb_gym.problems.replay import ReplayProblem


@lru_cache(maxsize=4)
def _table(source: str) -> Any:
    import dpb_data

    return dpb_data.load_ratings(source)


@lru_cache(maxsize=8)
def _problem(source: str, arguments: tuple[tuple[str, Any], ...]) -> ReplayProblem:
    return ReplayProblem(_table(source), **dict(arguments))


def replay_problem(
    data: str = "synthetic-movielens",
    horizon: int = 10_000,
    dim: int = 50,
    n_candidates: int = 5,
    protocol: str = "matrix",
    personalised: bool = False,
    binary: float | None = None,
    train_fraction: float = 0.5,
    min_ratings: int = 5,
    split_seed: int = 0,
    context_norm: str = "raw",
) -> ReplayProblem:
    """Makes a `ReplayProblem` on a named data set or a rating file.

    The features of recently used settings are kept, so that many environments on one
    data set cost one factorisation.

    Args:
        data: Name of a data set (``dpb data list``) or a path. The default is generated
            by this package; real ratings are named explicitly, e.g.
            ``"ml-latest-small"``.
        horizon: See `ReplayProblem` for this and the remaining parameters.

    Raises:
        DataError: If the data are missing or damaged.
        ParameterError: If a parameter is out of range.
    """
    arguments = dict(locals())
    source = str(arguments.pop("data"))
    return _problem(source, tuple(sorted(arguments.items())))
