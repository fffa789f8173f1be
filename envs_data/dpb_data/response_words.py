"""Responses in words and codes: which of them mean yes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.questions import Answer, Question
from dpb_gym.errors import ParameterError

YES = ("true", "yes", "y", "ja", "j", "oui", "si", "sí", "sì", "sold", "t", "accepted", "bought",
       "booked", "renewed", "won")  # fmt: skip
NO = ("false", "no", "n", "nein", "non", "nee", "not sold", "f", "declined", "rejected", "lapsed",
      "lost", "unsold")  # fmt: skip
ABSENT = ("", "na", "n/a", "n.a.", "#n/a", "nan", "null", "none", "k.a.", "missing", "unknown",
          "-", "--", "–", "?", "nat", "<na>")  # fmt: skip
"""Texts of missing values, in lower case."""
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_MOST_OUTCOMES = 12  # different texts of a response
_FEWEST_UNKNOWN = 5  # responses that are neither numbers nor yes or no; fewer are errors


def read_success(
    name: str, values: Any, success: Any, where: str, note: Callable[[str, int], None]
) -> Any:
    """Return a response as 1 and 0, with null for missing values.

    Args:
        name: Name of the column.
        values: Arrow array.
        success: The values that mean yes, as the argument ``success=``.
        where: Name of the table in messages.
        note: Records a change and its number of rows.
    """
    import pyarrow as pa

    texts = [None if value is None else plain_text(value) for value in values.to_pylist()]
    known = [None if text is None or text in ABSENT else text for text in texts]
    hit = succeeded(known, success, name, where)
    listed = success if isinstance(success, (list, tuple)) else [success]
    said = " and ".join(map(repr, listed))
    note(f"{name}: {said} read as 1, all other values as 0", len(texts))
    marked = len({*known} - {None}) == 1  # then nothing means no
    numbers = [None if text is None and not marked else float(h) for text, h in zip(known, hit)]
    return pa.chunked_array([numbers], pa.float64())


def plain_text(value: Any) -> str:
    """Return a value of a response as text in lower case; whole numbers without a point."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (int, float, np.number)):
        return f"{value:.16g}"
    return str(value).strip().lower()


def succeeded(
    texts: Sequence[str | None], success: Any, name: str, where: str
) -> NDArray[np.bool_]:  # fmt: skip
    """Return which responses mean yes ``(n,)``.

    Args:
        texts: Responses as `plain_text` returns them, None for missing ones.
        success: Value, or list of values, that mean yes.
        name: Name of the column.
        where: Name of the table in messages.

    Raises:
        ParameterError: If no response, or every one, means yes.
    """
    listed = success if isinstance(success, (list, tuple)) else [success]
    wanted = {*map(plain_text, listed)}
    levels = {text for text in texts if text is not None}
    unknown = wanted - levels
    empty = len(levels) == 1 and None in texts  # a mark, or nothing
    if unknown or (levels <= wanted and not empty):
        some = ", ".join(sorted(levels)[:_MOST_OUTCOMES])
        raise ParameterError(
            f"success=: {name} of {where} is {some}; name those that mean yes, but not all, got "
            f"{success!r}"
        )
    return np.array([text in wanted for text in texts])


def success_question(where: str, name: str, levels: Mapping[str, int]) -> Question:
    """Return the question of which values of a response mean yes.

    Args:
        where: Name of the table in messages.
        name: Name of the column.
        levels: Number of rows by value.
    """
    answers = [
        Answer({"success": level}, f"{count:,} rows; all others mean no")
        for level, count in levels.items()
    ]
    if len(answers) > 2:
        some = [*levels][:2]
        answers.append(Answer({"success": some}, "several", pattern=True))
    return Question(
        "success",
        f"{where}: {name} is {', '.join(map(repr, levels))}. Which values mean that the customer "
        "accepted?",
        tuple(answers),
        name,
    )


def mark_question(where: str, name: str, mark: str, count: int) -> Question:
    """Return the question of whether an empty response means no, where all others are equal.

    Args:
        where: Name of the table in messages.
        name: Name of the column.
        mark: The only value.
        count: Number of rows with it.
    """
    return Question(
        "success",
        f"{where}: {name} is {mark!r} in {count:,} rows and empty in all others. Did the customers "
        "of the empty ones refuse?",
        (Answer({"success": mark}, "yes: empty means no"),),
        name,
    )


def outcomes(values: Sequence[Any]) -> dict[str, int]:
    """Return the number of rows by text of a response, if it must be asked which mean yes.

    Words for no come last. Empty for many different texts, and where nearly all are known.

    Args:
        values: Texts, None for missing ones.
    """
    counts = Counter(str(value) for value in values if value is not None)
    known = {text for text in counts
             if plain_text(text) in {*YES, *NO} or _NUMBER.fullmatch(text)}  # fmt: skip
    unknown = sum(count for text, count in counts.items() if text not in known)
    if not 1 < len(counts) <= _MOST_OUTCOMES or unknown < _FEWEST_UNKNOWN:
        return {}
    refused = {text for text in counts if plain_text(text) in NO}
    return dict(sorted(counts.items(), key=lambda pair: (pair[0] in refused, -pair[1], pair[0])))
