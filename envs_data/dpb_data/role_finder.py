"""Find the layout of an unknown table, and the column of each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpb_data.column_profiles import Profile, is_id_name
from dpb_data.column_reader import Array, Opened
from dpb_data.column_roles import ROLES, TABLES, TableLayout, named_columns
from dpb_data.lettered_choices import letter_choices
from dpb_data.questions import Question
from dpb_data.reading_questions import (
    NO_PERSON,
    case_question,
    layout_question,
    role_question,
)
from dpb_data.wide_choices import (
    MOST_ALTERNATIVES,
    Layout,
    names_columns,
    wide_layout,
)
from dpb_gym.errors import DataError, ParameterError, QuestionError

COLUMNS = (*ROLES, "features", "time", "title")
"""Arguments that name columns."""
ONLY_WIDE = ("alternatives", "none", "unknown")
"""Arguments of wide choices alone."""
_LAYOUT_OF = dict.fromkeys(("rating_range", "time", "title"), "ratings") | dict.fromkeys(
    ONLY_WIDE, "wide choices"
)
_MOST_PAIRED = 12  # columns of which pairs may number choice sets


class RoleFinder:
    """Roles of the columns of an opened table.

    Args:
        opened: The table.
        problem: Name of the problem, if known.
        own: Given arguments of the reader.
        profiles: Values of the columns that can be read.

    Attributes:
        questions: Questions that were found.
        candidates: Columns that may have each role.
    """

    def __init__(
        self,
        opened: Opened,
        problem: str | None,
        own: Mapping[str, Any],
        profiles: Mapping[str, Profile],
    ) -> None:
        self.opened = opened
        self.problem = problem
        self.own = own
        self.profiles = profiles
        self.questions: list[Question] = []
        self.candidates = self._candidates()

    def _candidates(self) -> dict[str, list[str]]:
        """Return the columns that may have each role, by given arguments and by names."""
        taken = {name for key in COLUMNS for name in names_of(self.own.get(key))}
        free = [name for name in self.opened.columns if name and name not in taken]
        candidates = {}
        for key, role in ROLES.items():
            if key in self.own:
                candidates[key] = names_of(self.own[key])
                continue
            candidates[key] = named_columns(role, free, self.profiles)
            if len(candidates[key]) == 1:  # a column has one role: purchase_price is a price
                free = [name for name in free if name not in candidates[key]]
        long = candidates["case"] and candidates["item"] and not candidates["chosen"]
        if long and not (candidates["propensity"] or {"reward", "bought", "price"} & {*self.own}):
            candidates["chosen"] = candidates[
                "reward"
            ]  # of an alternative, without a chance of showing it
        if (
            candidates["propensity"]
            and candidates["item"]
            and not (candidates["reward"] or candidates["price"])
        ):
            candidates["reward"] = candidates[
                "bought"
            ]  # a response to an item that was shown by chance
        if not candidates["chosen"] and not {"case", "price", "bought", "reward", "rating"} & {
            *self.own
        }:
            candidates["chosen"] = self._naming()
        return candidates

    def _naming(self) -> list[str]:
        """Return the columns of text whose values name other columns, as choices in wide tables."""
        others = [*self.opened.columns]
        return [
            name
            for name, profile in self.profiles.items()
            if profile.text and 2 <= profile.distinct <= MOST_ALTERNATIVES
            and names_columns(profile.texts, [c for c in others if c != name])
        ]  # fmt: skip

    def layout(self) -> TableLayout | None:
        """Return the layout of the table, or None with a question."""
        given = {key for key in self.own if key in ROLES and key != "person"}
        implied = {_LAYOUT_OF[key] for key in self.own if key in _LAYOUT_OF}
        allowed = [
            table for table in TABLES.values()
            if self.problem in (None, table.problem) and given <= {*table.roles}
            and (not implied or implied == {table.name})
        ]  # fmt: skip
        if not allowed:
            raise ParameterError(
                f"no table has the arguments {', '.join(sorted(given))} together: needed are "
                f"{_needs([t for t in TABLES.values() if self.problem in (None, t.problem)])}"
            )
        complete = [t for t in allowed if all(self.candidates[role] for role in t.needed)]
        names = [table.name for table in complete]
        if "wide choices" in names and ("long choices" in names or not self._is_wide(allowed)):
            complete = [table for table in complete if table.name != "wide choices"]
        if len(complete) == 1:
            return complete[0]
        if complete:
            text = f"{self.opened.where}: the columns fit {len(complete)} kinds of tables."
            self._ask(layout_question(text, complete, self.candidates, self.profiles))
            return None
        return self._partial(allowed)

    def _is_wide(self, allowed: Sequence[TableLayout]) -> bool:
        """Return whether the table is one of wide choices; raise if no other layout may fit."""
        if len(self.candidates["chosen"]) != 1:
            return True
        try:
            self.wide_layout(self.candidates["chosen"][0])
        except QuestionError:
            return True
        except DataError:
            other = [t for t in allowed if any(self.candidates[role] for role in t.needed)]
            if len(other) == 1:
                raise
            return False
        return True

    def _partial(self, allowed: Sequence[TableLayout]) -> TableLayout | None:
        """Return the layout of which most roles are known, or None with a question."""
        if len(allowed) == 1:
            return allowed[0]
        known = {
            t.name: sum(bool(self.candidates[role]) for role in t.needed)
            for t in allowed
            if t.name != "wide choices"
        }
        most = max(known.values(), default=0)
        best = [name for name, count in known.items() if count == most]
        if most and len(best) == 1:
            return TABLES[best[0]]
        if len(known) == 1:
            return TABLES[best[0]]
        roles = {role: names[0] for role, names in self.candidates.items() if names}
        seen = "; ".join(f"{role} is {name!r}" for role, name in roles.items())
        text = (
            f"{self.opened.where}: the roles of the columns "
            f"{', '.join(self.opened.columns[:30])} are not known by their names"
            f"{f', but {seen}' if seen else ''}. What is a row?"
        )
        question = layout_question(text, allowed, self.candidates, self.profiles)
        known_by_letters = []
        if any(table.name == "wide choices" for table in allowed):
            known_by_letters = letter_choices(self.profiles)
        self._ask(replace(question, answers=(*known_by_letters, *question.answers)))
        return None

    def columns(self, layout: TableLayout) -> dict[str, Any]:
        """Return the column of each role of a layout; ask for those that are not known."""
        columns = dict[str, Any]()
        for role in layout.roles:
            names = self.candidates[role]
            if role in self.own:
                if self.own[role] != NO_PERSON or role != "person":
                    columns[role] = self.own[role]
            elif len(names) == 1:
                columns[role] = names[0]
            elif role in layout.needed and role != "case":
                self._ask_role(role, columns)
        if layout.name == "long choices" and "case" not in self.own:
            self._ask_case(columns)
        return columns

    def _ask_case(self, columns: dict[str, Any]) -> None:
        """Ask for the choice sets, unless the column with their name numbers them.

        Numbers of tasks may begin again with each person: then two columns number the sets.
        """
        named = self.candidates["case"]
        roles = [columns[role] for role in ("item", "chosen") if role in columns]
        roles = [name for name in roles if name in self.profiles]
        if len(named) == 1 and (len(roles) < 2 or self._number_sets(named, *roles)):
            return
        fitting = self._possible_sets(named, roles) if len(roles) == 2 else []
        if fitting:
            columns.pop("case", None)
            counts = {names: int(self.sets(names).max()) + 1 for names in fitting}
            self._ask(case_question(self.opened, named, counts))
        elif len(named) != 1:
            self._ask_role("case", columns)

    def _possible_sets(
        self, named: Sequence[str], roles: Sequence[str]
    ) -> list[tuple[str, ...]]:  # fmt: skip
        """Return the columns, or else the pairs of columns, that can number the choice sets."""
        pool = [
            name
            for name, profile in self.profiles.items()
            if name not in roles and (profile.text or profile.whole) and profile.distinct > 1
            and len(profile.known) == len(profile.values)
        ]  # fmt: skip
        likely = [name for name in pool if is_id_name(name) or name in named]
        pool = [*likely, *(name for name in pool if name not in likely)][:_MOST_PAIRED]
        singles = [(name,) for name in named or pool]
        pairs = [
            (a, b)
            for k, a in enumerate(pool)
            for b in pool[k + 1 :]
            if not named or {a, b} & {*named}
        ]
        for options in (singles, pairs):
            fitting = [names for names in options if self._number_sets(names, *roles)]
            if fitting:
                return fitting
        return []

    def _number_sets(self, names: Sequence[str], item: str, chosen: str) -> bool:
        """Return whether columns number sets with each item once, and at most one choice."""
        if any(name not in self.profiles for name in names):
            return False
        sets = self.sets(names)
        count = int(sets.max()) + 1
        pairs = np.column_stack([sets, self.profiles[item].codes()])
        if 2 * count > len(sets) or len(np.unique(pairs, axis=0)) < len(sets):
            return False
        taken = self.profiles[chosen]
        if taken.text:
            return True
        return bool((np.bincount(sets, np.nan_to_num(taken.values) == 1) <= 1).all())

    def _ask_role(self, role: str, columns: Mapping[str, Any]) -> None:
        taken = {name for value in columns.values() for name in names_of(value)}
        free = {name: profile for name, profile in self.profiles.items() if name not in taken}
        self._ask(role_question(self.opened, role, self.candidates[role], columns, free))

    def _ask(self, question: Question) -> None:
        self.questions.append(question)

    def sets(self, case: Any) -> Array:
        """Return the number of each row's choice set ``(n,)`` by the columns of their ids."""
        codes = [self.profiles[name].codes() for name in names_of(case) if name in self.profiles]
        sets: Array = np.unique(np.column_stack(codes), axis=0, return_inverse=True)[1].ravel()
        return sets

    def wide_layout(self, chosen: str) -> Layout:
        """Return the layout of wide choices; see `dpb_data.wide_choices.wide_layout`."""
        given = {key: self.own.get(key) for key in ONLY_WIDE}
        person = self.own.get("person", "")
        return wide_layout(self.opened, chosen, self.own.get("features", ()), person, **given)


def _needs(tables: Sequence[TableLayout]) -> str:
    return "; ".join(f"{', '.join(table.needed)} for {table.name}" for table in tables)


def names_of(value: Any) -> list[str]:
    """Return the names of columns in an argument: one, a list, or none in another value."""
    if isinstance(value, str):
        return [value]
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else []
