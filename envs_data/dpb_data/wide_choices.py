"""Layouts of wide choice tables: alternatives and attributes in the names of columns.

A column is an attribute of an alternative if its name has the alternative's, at an end and apart
from the rest: ``train_cost``, ``cost.train``, ``CostTrain``. Digits without a separator, such as
those of ``Mood1``, are no alternatives unless they are named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpb_data.column_reader import Column, Opened
from dpb_data.questions import Answer, Question
from dpb_gym.errors import DataError, ParameterError, QuestionError

MISSING = "missing"
"""Name of an empty value of `chosen` in ``none=`` and ``unknown=``."""
MOST_ALTERNATIVES = 50
_OFFERED = ("av", "avail", "available", "availability", "offered")
_NONE = frozenset(
    ("none", "none of them", "none of these", "nothing", "neither", "no choice", "no_choice",
     "no purchase", "no_purchase", "nochoice", "opt-out", "optout", "opt out", "outside",
     "outside option", "keine", "keines", "aucun", "aucune", "ninguno", "ninguna", "nessuno")
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Layout of a file of choices.

    Attributes:
        name: Name of the layout.
        case: Column of set numbers in long files (one line per alternative); empty for wide files
            (one line per set, alternatives in columns).
        item: Column of the alternative (long files).
        chosen: Column of the choice: 0/1 or TRUE/FALSE (long), or the alternative (wide).
        features: Columns of attributes. In wide files ``{}`` stands for the alternative; an
            alternative without such a column has value 0, and a column without ``{}`` is of the
            customer.
        lacking: Wide files: columns of attributes that the published file does not have.
        person: Column of person ids, or empty.
        alternatives: Wide files: text that replaces ``{}``, by the value of `chosen`.
        available: Wide files: column that is 1 if the alternative was offered.
        free: Wide files: features that become 0 where a column is not 0, by that column.
        none: Wide files: values of `chosen` that stand for choosing no alternative. None: sets
            with a value that is no alternative are left out. Else alternatives with a missing
            attribute were not offered.
    """

    name: str
    chosen: str
    features: tuple[str, ...]
    case: str = ""
    item: str = ""
    person: str = ""
    alternatives: Mapping[str, str] | None = None
    available: str = ""
    free: Mapping[str, tuple[str, ...]] | None = None
    none: frozenset[str] | None = None
    lacking: tuple[str, ...] = ()

    def columns(self) -> set[str]:
        """Return the names of all columns of a published file."""
        names = [self.case, self.item, self.chosen, self.person, *(self.free or {})]
        alternatives = [*(self.alternatives or {"": ""}).values()]
        names += [self.available.format(a) for a in alternatives]
        names += [feature.format(a) for feature in self.features for a in alternatives]
        return {name for name in names if name and name not in self.lacking}


def code(value: object) -> str:
    """Return a value of `chosen` as text; 1.0 is 1, and None is `MISSING`."""
    text = MISSING if value is None else str(value).strip() or MISSING
    return re.sub(r"\.0+$", "", text) if re.fullmatch(r"-?[0-9]+\.0+", text) else text


def stem(pattern: str) -> str:
    """Return the name of an attribute whose columns have this pattern."""
    return pattern.replace("{}", "").strip("_. :-")


def codes_of(given: Any) -> frozenset[str]:
    """Return values of ``none=`` or ``unknown=``, one or a list, as codes."""
    values = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    return frozenset(code(value) for value in values if value is not None)


def wide_layout(
    opened: Opened,
    chosen: str,
    features: Sequence[str] = (),
    person: str = "",
    alternatives: Mapping[Any, Any] | Sequence[Any] | None = None,
    none: Any = None,
    unknown: Any = None,
) -> Layout:
    """Return the layout of a wide table by the names of its columns; see `dpb_data.choices`.

    Raises:
        QuestionError: The names do not say which columns are attributes, or which alternative or
            none a value of `chosen` stands for.
        DataError: If fewer than two alternatives have columns.
        ParameterError: If an attribute or an alternative is not among the columns.
    """
    values = opened.take([Column(chosen, kind="code", nullable=True)])[chosen]
    counts = Counter(map(code, values))
    rows = {key: k for k, key in reversed([*enumerate(map(code, values))])}
    nothing = codes_of(none)
    unclear = codes_of(unknown)
    outside = {key for key in counts if key in nothing | unclear or key.casefold() in _NONE}
    named = _named(alternatives)
    texts = named or {key: key for key in counts if key not in {*outside, MISSING}}
    texts = texts if len(texts) <= MOST_ALTERNATIVES else {}
    others = [name for name in opened.columns if name not in (chosen, person)]
    apart, glued = name_patterns(others, texts)
    patterns = apart | {
        pattern: by_code for pattern, by_code in glued.items()
        if named or stem(pattern) in features or pattern in features
    }  # fmt: skip
    stems = {stem(pattern): pattern for pattern in patterns}
    offers = [pattern for name, pattern in stems.items() if name.casefold() in _OFFERED]
    about = {name: pattern for name, pattern in stems.items() if pattern not in offers}
    if not about and named:
        raise ParameterError(
            f"alternatives= names {', '.join(named.values())}, of which fewer than two are in the "
            f"names of columns: {', '.join(others[:30])}"
        )
    if not about:
        by_stem = {stem(pattern): by_code for pattern, by_code in glued.items()}
        raise _no_attributes(opened, chosen, counts, by_stem)
    of_customer = [name for name in features if name not in about and name in others]
    if wrong := set(features) - set(about) - set(of_customer):
        raise ParameterError(f"features {sorted(wrong)}: the attributes are {', '.join(about)}")
    used = [about[name] for name in features or about if name in about]
    if not used:
        raise ParameterError(f"features must name an attribute: {', '.join(about)}")
    known = {key: patterns[p][key] for key in sorted(texts) for p in used if key in patterns[p]}
    if lost := [key for key in texts if named and key not in known]:
        raise ParameterError(f"alternatives {lost}: no column of an attribute is named by them")
    strange = [key for key in counts if key not in known and key not in outside]
    if strange:
        raise QuestionError(_code_question(opened, chosen, strange, counts, rows, [*known]))
    if not named and len(used) > 1:  # by one attribute alone, unit_cost would be an alternative
        known |= {text: text for text in sorted(_never_chosen(others, used) - {*known.values()})}
    return Layout(
        "wide", chosen, (*used, *of_customer), person=person, alternatives=known,
        available=offers[0] if offers else "", none=frozenset(outside - unclear),
    )  # fmt: skip


def _named(alternatives: Any) -> dict[str, str]:
    """Return ``alternatives=`` as text in the names of columns by code."""
    if alternatives is None:
        return {}
    if isinstance(alternatives, Mapping):
        return {code(key): str(text) for key, text in alternatives.items()}
    if isinstance(alternatives, (list, tuple)):
        return {code(text): code(text) for text in alternatives}
    raise ParameterError(
        "alternatives= lists the alternatives, or gives the text in the names of columns by the "
        f"value of chosen, such as {{1: 'Bus', 2: 'Car'}}, got {alternatives!r}"
    )


Patterns = dict[str, dict[str, str]]


def names_columns(values: Sequence[str], columns: Sequence[str]) -> bool:
    """Return whether columns of at least one attribute are named by all values of a column."""
    texts = {value: value for value in values}
    apart, _ = name_patterns(columns, texts)
    return any(len(by_code) == len(texts) for by_code in apart.values())


def name_patterns(columns: Iterable[str], texts: Mapping[str, str]) -> tuple[Patterns, Patterns]:
    """Return patterns of columns that are named by at least two alternatives.

    Args:
        columns: Names of columns.
        texts: Text of each alternative by its code.

    Returns:
        Two mappings from a pattern such as ``"cost_{}"`` to the text by code: of names in which
        the text is apart from the rest, and of names that end or begin with its digits.
    """
    apart: Patterns = {}
    glued: Patterns = {}
    for name in columns:
        plain = name.strip()
        for key, text in texts.items():
            for start in (0, len(plain) - len(text)):
                before = plain[:start]
                after = plain[start + len(text) :]
                here = plain[start : start + len(text)]
                if here.casefold() != text.casefold() or not (before or after):
                    continue
                pattern = f"{name[: name.index(plain)]}{before}{{}}{after}"
                if _is_apart(before, here, after):
                    apart.setdefault(pattern, {})[key] = here
                elif not after and (_is_letter(before) or _is_number_apart(before, text)):
                    glued.setdefault(pattern, {})[key] = here
    return tuple(  # type: ignore[return-value]
        {p: by_code for p, by_code in kind.items() if len(by_code) > 1} for kind in (apart, glued)
    )


def _is_letter(before: str) -> bool:
    return len(before) == 1 and before.isalpha()


def _is_number_apart(before: str, text: str) -> bool:
    return text.isdigit() and not before[-1:].isdigit()


def _is_apart(before: str, here: str, after: str) -> bool:
    """Return whether a part of a name is separated by a mark, or by a capital letter."""
    left = before[-1:]
    right = after[:1]
    if left and not (left in "_. :-" or (left.islower() and here[:1].isupper())):
        return False
    return not right or right in "_. :-" or (here[-1:].islower() and right.isupper())


def _never_chosen(columns: Iterable[str], used: Sequence[str]) -> set[str]:
    """Return alternatives that have all attributes but are never chosen."""
    alternatives = []
    for pattern in used:
        before, _, after = pattern.partition("{}")
        alternatives.append({
            name[len(before) : len(name) - len(after)] for name in columns
            if name.startswith(before) and name.endswith(after)
            and len(name) > len(before) + len(after)
        })  # fmt: skip
    return {
        text for text in set.intersection(*alternatives)
        if all(_is_apart(p.partition("{}")[0], text, p.partition("{}")[2]) for p in used)
    }  # fmt: skip


def _no_attributes(opened: Opened, chosen: str, counts: Counter[str], glued: Patterns) -> DataError:
    """Return the question, or the error, for a table without columns named by its choices."""
    listed = ", ".join(sorted(counts)[:8])
    if glued:
        some = next(iter(glued))
        texts = [*glued[some].values()]
        most = max(map(len, glued.values()))
        likely = [name for name, by_code in glued.items() if len(by_code) == most]
        return QuestionError(
            Question(
                "features",
                f"{opened.where}: columns such as {some}{texts[0]} and {some}{texts[1]} end in "
                f"values of {chosen} ({listed}) without a separator. Are they attributes of the "
                "alternatives, or for instance answers to questions?",
                (
                    Answer({"features": likely}, "attributes of the alternatives"),
                    Answer({"features": ["NAME"]}, "only the named ones are", pattern=True),
                ),
                some,
            )
        )
    others = [name for name in opened.columns if name != chosen]
    grids = _grids(others) or _grids(others, digits=True)
    if grids and len(counts) <= MOST_ALTERNATIVES:
        return QuestionError(_grid_question(opened, chosen, counts, grids))
    return DataError(
        f"{opened.where}: no columns are named by the values of {chosen} ({listed}): name them "
        "like train_cost, or give a table with one row per alternative and case="
    )


def _grids(columns: Sequence[str], digits: bool = False) -> list[dict[str, list[str]]]:
    """Return the attributes of each text at the end or beginning of names that form a grid.

    ``MinutesBus``, ``FareBus``, ``MinutesBike`` and ``FareBike`` are two attributes of two
    alternatives, or the reverse: then there are two results. With `digits` so are ``cost1``,
    ``time1``, ``cost2`` and ``time2``.
    """
    ends = dict[str, dict[str, None]]()
    beginnings = dict[str, dict[str, None]]()
    for name in columns:
        for cut in range(1, len(name)):
            number = digits and name[cut:].isdigit() and not name[cut - 1].isdigit()
            if number or _is_apart(name[:cut], name[cut:], ""):
                head = stem(name[:cut])
                tail = stem(name[cut:])
                ends.setdefault(tail, {})[head] = None
                beginnings.setdefault(head, {})[tail] = None
    grids = [_best_grid(ends), {} if digits else _best_grid(beginnings)]
    # what says whether alternatives were offered is an attribute
    grids = [grid for grid in grids if not any(text.casefold() in _OFFERED for text in grid)]
    largest = max(map(_size, grids), default=0)
    return [grid for grid in grids if grid and _size(grid) == largest]


def _best_grid(parts: Mapping[str, Mapping[str, None]]) -> dict[str, list[str]]:
    """Return the largest set of parts of names that have the same other parts, at least two."""
    best: dict[str, list[str]] = {}
    for others in parts.values():
        for least in range(2, len(others) + 1):
            some = [part for part, own in parts.items() if len({*own} & {*others}) >= least]
            shared = [other for other in others if all(other in parts[part] for part in some)]
            if len(some) >= 2 and len(shared) >= 2 and len(some) * len(shared) > _size(best):
                best = dict.fromkeys(some, shared)
    return best


def _size(grid: Mapping[str, Sequence[str]]) -> int:
    return sum(map(len, grid.values()))


def _grid_question(
    opened: Opened, chosen: str, counts: Counter[str], grids: Sequence[Mapping[str, list[str]]]
) -> Question:
    """Return the question of which value of `chosen` is which alternative."""
    keys = sorted((key for key in counts if key != MISSING), key=_order)
    usual = [key for key in keys if not key.startswith("-")]
    answers = []
    for grid in grids:
        texts = sorted(grid, key=_order) if all(text.isdigit() for text in grid) else [*grid]
        for start in range(max(1, len(usual) - len(texts) + 1))[: 3 - len(grids)]:
            some = dict(zip(usual[start:], texts))
            rest = sorted((key for key in counts if key not in some), key=_order)
            settings: dict[str, Any] = {"alternatives": some}
            means = ", ".join(f"{key} is {text}" for key, text in some.items())
            if rest:
                settings["unknown"] = rest
                means += "; none= instead of unknown= for values that mean none of them"
            answers.append(Answer(settings, means))
    named = " or ".join(f"{', '.join(grid)} ({', '.join(next(iter(grid.values())))})"
                        for grid in grids)  # fmt: skip
    return Question(
        "alternatives",
        f"{opened.where}: {chosen} has the values {_counted(keys, counts)}, which no column is "
        f"named by. Columns are named by {named}. Which value stands for which alternative, which "
        "for none of them (none=), and which is not known (unknown=)?",
        tuple(answers),
        chosen,
    )


def _code_question(
    opened: Opened, chosen: str, strange: Sequence[str], counts: Counter[str],
    rows: Mapping[str, int], known: Sequence[str],
) -> Question:  # fmt: skip
    """Return the question of what values of `chosen` mean that are no alternative."""
    keys = sorted(strange, key=_order)
    first = opened.at(rows[keys[0]])
    below = [key for key in keys if key.startswith("-")]
    others = [key for key in keys if key not in below]
    split = [
        Answer(
            {"none": others, "unknown": below},
            f"{', '.join(others)}: none of the alternatives; {', '.join(below)}: not known",
        )
    ]  # fmt: skip
    return Question(
        "none",
        f"{first}: {chosen} is {keys[0]}, which is none of the alternatives "
        f"{', '.join(sorted(known, key=_order))}. What do the values {_counted(keys, counts)} "
        "mean?",
        (
            *(split if below and others else ()),
            Answer({"none": keys}, "none of the alternatives was chosen"),
            Answer({"unknown": keys}, "the choice is not known: leave these rows out"),
        ),
        chosen,
    )


def _order(key: str) -> tuple[int, float, str]:
    try:
        return 0, float(key), key
    except ValueError:
        return 1, 0.0, key


def _counted(keys: Sequence[str], counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} ({counts[key]:,} rows)" for key in keys[:8])
