"""The questions that a table may leave open, each with the arguments that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpb_data.column_profiles import Profile
from dpb_data.column_reader import Array, Opened
from dpb_data.column_roles import MEANINGS, ROLES, TableLayout, possible_columns
from dpb_data.questions import Answer, Question
from dpb_data.table_repair import NO_CODES

NO_PERSON = "none"
"""Value of ``person=`` for a table in which no column numbers persons."""
MOST_ANSWERS = 8
_ROWS = {
    "clicks": "an item that was shown, with its probability",
    "ratings": "a rating",
    "long choices": "an alternative of a choice set",
    "wide choices": "a choice, with attributes in columns such as train_cost",
    "prices": "a quoted price",
}


def layout_question(
    text: str,
    tables: Sequence[TableLayout],
    candidates: Mapping[str, Sequence[str]],
    profiles: Mapping[str, Profile],
) -> Question:
    """Return the question of what a row is; kinds of tables that the values fit come first.

    Args:
        text: The question.
        tables: Kinds of tables.
        candidates: Columns that may have each role by their names.
        profiles: Values of the columns.
    """
    answers = []
    for table in tables:
        settings: dict[str, Any] = {"problem": table.problem}
        free = dict(profiles)
        possible = True
        for role in table.needed:
            names = candidates[role] or possible_columns(ROLES[role], free)
            settings[role] = names[0] if len(names) == 1 else "COLUMN"
            possible = possible and bool(names)
            if len(names) == 1:
                free.pop(names[0], None)
        pattern = "COLUMN" in settings.values()
        answers.append((not possible, Answer(settings, _ROWS[table.name], pattern)))
    ordered = sorted(answers, key=lambda pair: pair[0])
    return Question("problem", text, tuple(answer for _, answer in ordered))


def role_question(
    opened: Opened,
    role: str,
    names: Sequence[str],
    columns: Mapping[str, Any],
    profiles: Mapping[str, Profile],
) -> Question:
    """Return the question of which column has a role.

    Args:
        opened: The table.
        role: The role.
        names: Columns whose names say that they have it: none, or several.
        columns: Columns of other roles.
        profiles: Values of the columns without a role.
    """
    fitting = [*names] or possible_columns(ROLES[role], profiles)
    answers = [
        Answer({role: name}, _some_values(profiles[name]))
        for name in fitting[:MOST_ANSWERS]
        if name in profiles
    ]
    if not answers or len(fitting) > MOST_ANSWERS:
        answers.append(Answer({role: "COLUMN"}, "another column", pattern=True))
    if names:
        text = f"{opened.where}: {listed(names)} may each be {MEANINGS[role]}. Which is it?"
    else:
        seen = "; ".join(f"{known} is {name!r}" for known, name in columns.items())
        text = (
            f"{opened.where}: {f'{seen}, but ' if seen else ''}no name of a column says which is "
            f"{MEANINGS[role]} (columns: {', '.join(opened.columns[:30])}). Which is it?"
        )
        if role == "bought" and not fitting:
            text += " Purchases alone do not show demand: add the quotes that were refused"
    return Question(role, text, tuple(answers))


def case_question(
    opened: Opened, named: Sequence[str], sets: Mapping[tuple[str, ...], int]
) -> Question:
    """Return the question of which columns number the choice sets.

    Args:
        opened: The table.
        named: Columns whose names say that they do.
        sets: Number of choice sets by the columns that can number them.
    """
    if not named:
        said = "no column is named as the number of a choice set"
    elif len(named) == 1:
        said = f"{named[0]} begins again, so that it does not number the choice sets"
    else:
        said = f"{listed(named)} may each number the choice sets"
    answers = [
        Answer({"case": names[0] if len(names) == 1 else [*names]}, f"{count:,} sets")
        for names, count in sets.items()
    ]
    return Question(
        "case", f"{opened.where}: {said}. Which columns number them?", tuple(answers[:MOST_ANSWERS])
    )


def units_question(
    opened: Opened, bought: str, sold: Array, columns: Sequence[str] = ()
) -> Question:
    """Return the question of how many customers were quoted the price of each row.

    Args:
        opened: The table.
        bought: Name of the column of units.
        sold: Its values ``(n,)``.
        columns: Columns that may count the customers.
    """
    row = int((sold > 1).argmax())
    if sold[row] > 1:
        what = f"{bought} is {sold[row]}, as of units sold"
    elif sold.min() > 0:
        what = f"{bought} is above 0 in every row"
    else:
        what = f"{bought} may count units or customers"
    several = f"as many in every row, such as {max(100, 10 * int(sold.max()))}"
    answers = []
    if {*np.unique(sold).tolist()} == {1, 2}:
        answers.append(Answer({"success": 1}, "a code: 1 means bought, and 2 not"))
    answers += [Answer({"offered": name}, f"{name} counts them") for name in columns]
    if not columns:
        answers.append(Answer({"offered": "COLUMN"}, "a column counts them", pattern=True))
    return Question(
        "offered",
        f"{opened.at(row)}: {what}. Sales do not tell how many customers came and did not buy. How "
        "many customers saw the price in each row?",
        (
            *answers,
            Answer({"offered": "NUMBER"}, several, pattern=True),
            Answer({"offered": 1}, "one: a row is one customer, and any number is a purchase"),
        ),
        bought,
    )


def paid_question(
    opened: Opened, price: str, bought: str, others: Sequence[str]
) -> Question:  # fmt: skip
    """Return the question of which column is the quoted price, where one is that of buyers only.

    Args:
        opened: The table.
        price: Column that has values for buyers only.
        bought: Column of purchases.
        others: Columns that can be prices.
    """
    answers = [Answer({"price": name}, "the price that every row was quoted") for name in others]
    answers.append(Answer({"price": "COLUMN"}, "another column", pattern=True))
    return Question(
        "price",
        f"{opened.where}: {price} has a value only where {bought} is 1: it is what buyers paid. "
        "Which column is the price that all customers saw?",
        tuple(answers[-MOST_ANSWERS:]),
        price,
    )


def discount_question(opened: Opened, price: str, discount: str) -> Question:
    """Return the question of whether a price is the one before or after a discount.

    Args:
        opened: The table.
        price: Column of the price.
        discount: Column of the discount.
    """
    return Question(
        "price",
        f"{opened.where}: {discount} differs between rows, and {price} may be the price before it. "
        "Demand follows what a customer has to pay. Which column is that price?",
        (
            Answer({"price": price}, f"{price}: it is after the discount"),
            Answer(
                {"price": "COLUMN"}, "another one: add a column of the price after it", pattern=True
            ),
        ),
        discount,
    )


def negative_question(opened: Opened, rules: Mapping[str, tuple[str, int]]) -> Question:
    """Return the question of whether rows with prices up to 0 or units below 0 are left out.

    Args:
        opened: The table.
        rules: Text of `dpb_data.table_repair.BELOW`, and number of rows, by column.
    """
    said = listed([f"{name} is {rule.replace('0', ' 0')} in {count:,} rows"
                   for name, (rule, count) in rules.items()])  # fmt: skip
    codes = {name: rule for name, (rule, _) in rules.items()}
    return Question(
        "absent",
        f"{opened.where}: {said}, as of gifts, refunds or returns. No model of demand has these. "
        "Are the rows left out?",
        (Answer({"absent": codes}, "yes; else correct the table"),),
        next(iter(rules)),
    )


def sets_question(
    opened: Opened, case: str, item: str, columns: Mapping[str, Any], count: int
) -> Question:
    """Return the question of whether rows are customers, or alternatives of one customer.

    Args:
        opened: The table.
        case: Column whose equal values have at most one purchase.
        item: Column that differs among them.
        columns: Columns of the prices and purchases.
        count: Number of the values of `case`.
    """
    return Question(
        "problem",
        f"{opened.where}: rows with the same {case} have at most one purchase. Is a row a customer "
        f"with one price, or one of several alternatives from which a customer chose?",
        (
            Answer(
                {"problem": "assortment", "case": case, "item": item, "chosen": columns["bought"]},
                f"an alternative: {count:,} choice sets of different {item}",
            ),
            Answer({"problem": "pricing"}, "a customer with one price"),
        ),
        case,
    )


def after_question(opened: Opened, flags: Sequence[str], others: Sequence[str]) -> Question:
    """Return the question of whether columns of 0 and 1 were recorded after the response.

    Args:
        opened: The table.
        flags: Columns of which one value has only one kind of response.
        others: All other features.
    """
    said = listed(flags)
    return Question(
        "features",
        f"{opened.where}: customers with one value of {said} all responded in the same way, as if "
        "it were recorded after the response. Which columns were known before it?",
        (
            Answer({"features": [*others]}, f"all but {said}"),
            Answer({"features": ["NAME"]}, "the columns that were known", pattern=True),
        ),
        flags[0],
    )


def absent_question(opened: Opened, codes: Mapping[str, Sequence[float]]) -> Question:
    """Return the question of whether numbers far from all others stand for missing values.

    Args:
        opened: The table.
        codes: Such numbers by column.
    """
    whole = {k: [int(c) for c in own] for k, own in codes.items()}
    plain = {k: own[0] if len(own) == 1 else own for k, own in whole.items()}
    said = "; ".join(f"{name} has {listed([*map(str, own)])}" for name, own in whole.items())
    return Question(
        "absent",
        f"{opened.where}: {said}, apart from all other values. Do they stand for missing values?",
        (
            Answer({"absent": plain}, "yes: these values are missing"),
            Answer({"absent": NO_CODES}, "no: they are values"),
        ),
        next(iter(codes)),
    )


def person_question(
    opened: Opened, ids: Mapping[str, tuple[int, int]], count: int, unit: str
) -> Question:
    """Return the question of which column numbers persons.

    Args:
        opened: The table.
        ids: Numbers of values, and of the most frequent one, by column.
        count: Number of rows or choice sets.
        unit: ``"rows"`` or ``"choice sets"``.
    """
    said = listed([f"{name} ({values:,} values)" for name, (values, _) in ids.items()])
    answers = [
        Answer({"person": name}, f"it numbers persons, who have up to {most:,} {unit} each")
        for name, (_, most) in [*ids.items()][:MOST_ANSWERS]
    ]
    answers.append(Answer({"person": NO_PERSON}, f"no person has several {unit}"))
    return Question(
        "person",
        f"{opened.where}: values recur in {said} of {count:,} {unit}, as if they numbered persons. "
        "A budget that protects one round does not protect a person with several. Which column "
        "numbers persons?",
        tuple(answers),
        next(iter(ids)),
    )


def range_question(opened: Opened, rating: Profile) -> Question:
    """Return the question of the lowest and highest possible rating."""
    low = float(rating.known.min())
    high = float(rating.known.max())
    return Question(
        "rating_range",
        f"{opened.where}: {rating.name} goes from {low:g} to {high:g}. ratings need "
        "rating_range=(lowest, highest possible rating), which a sample need not contain. What is "
        "it?",
        (
            Answer({"rating_range": [low, high]}, "as in the table"),
            Answer({"rating_range": ["LOWEST", "HIGHEST"]}, "another", pattern=True),
        ),
        rating.name,
    )


def features_question(opened: Opened, unused: Mapping[str, str]) -> Question:
    """Return the question of which columns are attributes of items.

    Args:
        opened: The table.
        unused: Reason by name of each column that is not taken as one.
    """
    vary = [name for name, why in unused.items() if "too few" in why]
    answers = [Answer({"features": vary}, "all that vary within a set")] if vary else []
    answers.append(Answer({"features": ["NAME"]}, "the attributes of the items", pattern=True))
    reasons = "; ".join(f"{name}: {why}" for name, why in unused.items()) or "none is left"
    return Question(
        "features",
        f"{opened.where}: no column is taken as an attribute ({reasons}). Which are?",
        tuple(answers),
    )


def outside_question(where: str, table: Any) -> Question:
    """Return the question of which alternative stands for choosing nothing.

    Args:
        where: Name of the table in messages.
        table: The `dpb_data.ChoiceTable`.
    """
    counts = np.bincount(table.items, minlength=len(table.item_ids))
    order = np.argsort(-counts, kind="stable")[:MOST_ANSWERS]
    answers = [
        Answer(
            {"outside": table.item_ids[k].item()},
            f"offered in {counts[k] / table.n_sets:.0%} of the sets",
        )
        for k in order
    ]
    return Question(
        "outside",
        f"{where}: every set has a choice, which does not tell how many would buy nothing. Which "
        "alternative stands for buying nothing of the others?",
        tuple(answers),
    )


def listed(names: Sequence[str]) -> str:
    """Return names as a list in words."""
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some_values(profile: Profile) -> str:
    some = list(dict.fromkeys(profile.known.tolist()))[:4]
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in some]
    return f"values such as {', '.join(texts)}"
