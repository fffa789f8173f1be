"""A reading of a table asks where two readings fit, and does not depend on order or other names."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpb_data
from dpb_gym.errors import DataError, DPBError, ParameterError, QuestionError, UnknownNameError

N = 240
Table = dict[str, Any]


def quotes(seed: int = 0, n: int = N) -> Table:
    rng = np.random.default_rng(seed)
    price = np.round(rng.uniform(1.0, 9.0, n), 2)
    return {
        "price": price,
        "bought": (rng.random(n) < 1.0 / (1.0 + np.exp(price - 4.0))).astype(int),
        "age": rng.integers(18, 80, n),
        "channel": rng.choice(["web", "shop"], n),
    }


def panel(persons: int = 24) -> Table:
    return {**quotes(), "household": np.repeat(np.arange(101, 101 + persons), N // persons)}


def weeks() -> Table:
    rng = np.random.default_rng(1)
    price = rng.choice([2.0, 3.0, 4.0], N)
    return {
        "price": price,
        "units": rng.poisson(20.0 / price),
        "bank_holiday": rng.integers(0, 2, N),
    }


def sets(persons: int = 20, tasks: int = 6, items: int = 3) -> Table:
    """Long choices whose numbers of tasks begin again with each person."""
    rng = np.random.default_rng(2)
    n = persons * tasks * items
    chosen = np.zeros(n, int)
    chosen[np.arange(0, n, items) + rng.integers(0, items, n // items)] = 1
    return {
        "respondent": np.repeat(np.arange(persons) + 1, tasks * items),
        "task": np.tile(np.repeat(np.arange(tasks) + 1, items), persons),
        "alt": np.tile(np.arange(items) + 1, persons * tasks),
        "cost": np.round(rng.uniform(1.0, 9.0, n), 1),
        "seats": rng.choice([5, 6, 7], n),
        "choice": chosen,
    }


def wide(codes: Any = ("bus", "car"), mark: str = "_") -> Table:
    rng = np.random.default_rng(3)
    frame: Table = {
        f"{a}{mark}{m}": np.round(rng.uniform(1.0, 9.0, N), 1)
        for a in ("cost", "time")
        for m in ("bus", "car")
    }
    return {**frame, "choice": np.array(codes)[np.arange(N) % len(codes)]}


def survey() -> Table:
    """Wide choices by codes; columns of attributes end in names of the alternatives."""
    rng = np.random.default_rng(4)
    frame: Table = {"choice": np.array([-1, 0, 1, 2])[rng.integers(0, 4, N)]}
    frame |= {f"{a}{m}": np.round(rng.uniform(1.0, 9.0, N), 1)
              for a in ("Minutes", "Fare") for m in ("Bus", "Bike")}  # fmt: skip
    return {**frame, **{f"Mood1{k}": rng.integers(1, 6, N) for k in range(3)}}


def topics(reading: dpb_data.Reading) -> list[str]:
    return [question.topic for question in reading.questions]


# ------------------------------------------------------------------------------- silence


CLEAR: dict[str, tuple[Callable[[], Table], dict[str, Any], str, dict[str, str]]] = {
    "prices": (quotes, {}, "prices", {"price": "price", "bought": "bought", "age": "feature",
                                      "channel": "feature"}),
    "visitors": (lambda: weeks() | {"visitors": np.full(N, 90) + np.arange(N) % 3}, {}, "prices",
                 {"units": "bought", "visitors": "offered"}),
    "long choices": (sets, {"case": ["respondent", "task"], "person": "respondent", "outside": 1},
                     "long choices", {"alt": "item", "choice": "chosen", "cost": "feature",
                                      "task": "case", "respondent": "person"}),
    "wide choices": (wide, {"outside": "car"}, "wide choices", {"choice": "chosen"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAR)
def test_a_table_that_fits_one_reading_raises_no_question(name: str) -> None:
    make, given_columns, layout, roles = CLEAR[name]
    reading = dpb_data.read(make(), **given_columns)
    assert topics(reading) == [] and reading.layout == layout
    assert roles.items() <= reading.roles.items()
    assert len(reading.table()) > 0
    assert set(reading.names) == set(make())


AMBIGUOUS: dict[str, tuple[Callable[[], Table], list[str]]] = {
    "units without visitors": (weeks, ["offered"]),
    "a column of units with 0 and 1": (
        lambda: {"price": quotes()["price"], "units": quotes()["bought"]}, ["offered"]
    ),
    "only purchases": (lambda: quotes() | {"bought": np.ones(N, int)}, ["offered"]),
    "views of a page, or customers": (
        lambda: quotes() | {"views": np.arange(N) % 4 + 1}, ["offered"]
    ),
    "a panel": (panel, ["person"]),
    "codes for missing values": (
        lambda: quotes() | {"age": np.where(np.arange(N) % 30 == 0, -999, 20 + np.arange(N) % 50)},
        ["absent"],
    ),
    "two columns of prices": (lambda: quotes() | {"fare": quotes()["price"] + 1.0}, ["price"]),
    "two kinds of tables": (
        lambda: quotes() | {"item": np.arange(N) % 3, "click": np.arange(N) % 2,
                            "propensity": np.full(N, 1 / 3)}, ["problem"]
    ),
    "tasks that begin again": (sets, ["case", "person", "outside"]),
    "codes without names": (survey, ["alternatives"]),
    "a code that is no alternative": (lambda: wide(("bus", "car", "-1")), ["none"]),
    "an empty choice": (lambda: wide(("bus", "car", "")), ["none"]),
    "columns that end in digits": (
        lambda: {"choice": np.arange(N) % 2 + 1, "Mood1": np.arange(N) % 5,
                 "Mood2": np.arange(N) % 4}, ["features", "outside"]
    ),
    "every set has a choice": (wide, ["outside"]),
    "a range of ratings": (
        lambda: {"user": np.arange(N) % 20, "item": np.arange(N) // 20, "rating": np.arange(N) % 5},
        ["rating_range"],
    ),
    "a comma": (lambda: quotes() | {"price": ["1,234", "2,500"] * (N // 2)}, ["decimal"]),
    "many missing values": (
        lambda: quotes() | {"price": [p if k % 3 else None for k, p in
                                      enumerate(quotes()["price"])]}, ["missing"]
    ),
    "words of a response": (
        lambda: {"price": quotes()["price"], "status": np.where(
            quotes()["bought"], "confirmed", ["declined", "expired"] * 120)},
        ["success"],
    ),
    "a flag that decides the response": (
        lambda: quotes() | {"cart": np.maximum(quotes()["bought"], np.arange(N) % 4 == 0)},
        ["features"],
    ),
    "names that say nothing": (
        lambda: {"fee": quotes()["price"], "kept": quotes()["bought"]}, ["problem"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_no_reading_is_silent_where_two_fit(name: str) -> None:
    make, expected = AMBIGUOUS[name]
    reading = dpb_data.read(make())
    assert topics(reading) == expected
    with pytest.raises(QuestionError) as raised:
        reading.table()
    assert raised.value.questions == reading.questions
    for question in reading.questions:
        assert question.answers and str(question.answers[0]) in str(raised.value)
        assert question.text in str(reading)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_at_most_two_rounds_of_answers_lead_to_a_table(name: str) -> None:
    """With the first command these are three actions."""
    fill = {"offered": 60, "header": ["price", "bought"]}
    reading = dpb_data.read(AMBIGUOUS[name][0]())
    rounds = 0
    while reading.questions:
        rounds += 1
        answers = dict[str, Any]()
        for question in reading.questions:
            plain = [answer for answer in question.answers if not answer.pattern]
            settings_ = plain[0].settings if plain else question.answers[-1].settings
            answers |= settings_ if plain else {question.topic: fill[question.topic]}
            if name == "names that say nothing":
                answers = {"problem": "pricing", "price": "fee", "bought": "kept"}
        reading = reading.answer(**answers)
    assert rounds <= 2 and len(reading.table()) > 0


def test_a_column_counts_customers_only_if_they_are_more_than_the_units() -> None:
    sold = weeks()["units"]
    seen = sold + 40
    assert dpb_data.read(weeks() | {"visitors": seen}).columns["offered"] == "visitors"
    fewer = seen.copy()
    fewer[7] = sold[7] - 1
    for wrong in (fewer, sold):
        (question,) = dpb_data.read(weeks() | {"visitors": wrong}).questions
        assert question.topic == "offered"
        assert "visitors" not in {answer.settings["offered"] for answer in question.answers}


def test_rows_of_many_customers_raise_no_question_of_persons() -> None:
    many = weeks() | {"visitors": np.full(N, 90), "panel_id": np.arange(N) % 12}
    reading = dpb_data.read(many)
    assert topics(reading) == [] and "panel_id" not in reading.columns["features"]
    assert topics(dpb_data.read(panel())) == ["person"]


def test_the_rarer_response_limits_the_features() -> None:
    """Ten of it per coefficient: 60 refusals or 60 purchases of 600 leave room for five columns."""
    rng = np.random.default_rng(0)
    rare = np.zeros(600, int)
    rare[rng.choice(600, 60, replace=False)] = 1
    table = {"price": np.round(rng.uniform(1, 5, 600), 2)}
    table |= {f"x{k}": rng.normal(size=600) for k in range(9)}
    for bought in (rare, 1 - rare):
        reading = dpb_data.read({**table, "bought": bought})
        assert len(reading.columns["features"]) == 5
        assert any("60 responses are too few" in why for why in reading.unused.values())


def test_the_last_digit_of_a_larger_number_is_no_alternative() -> None:
    answers = {f"Mood1{k}": np.arange(N) % (4 + k) for k in range(3)}
    reading = dpb_data.read({"choice": np.arange(N) % 3, **answers})
    assert "Mood1'" not in str(reading) and "features" not in topics(reading)


def test_choice_sets_have_each_item_once_and_at_most_one_choice() -> None:
    """A column whose equal values have different items, but two choices, numbers no sets."""
    rng = np.random.default_rng(0)
    n = 60
    trip = np.repeat(np.arange(n), 3)
    decoy = np.column_stack([np.arange(n), rng.permutation(n), rng.permutation(n)]).ravel()
    taken = rng.integers(0, 3, n)
    table = {"trip": trip, "round": decoy, "alt": np.tile(["a", "b", "c"], n),
             "cost": rng.uniform(1, 9, 3 * n),
             "chosen": (np.arange(3) == taken[:, None]).ravel()}  # fmt: skip
    assert np.bincount(decoy, table["chosen"]).max() > 1
    question = dpb_data.read(table).questions[0]
    assert [answer.settings for answer in question.answers] == [{"case": "trip"}]


def test_every_item_has_coefficients_of_its_own() -> None:
    """With four items, 300 responses leave room for 7 coefficients of each, the constant's too."""
    rng = np.random.default_rng(0)
    click = np.zeros(2_000, int)
    click[rng.choice(2_000, 300, replace=False)] = 1
    table = {"item": np.arange(2_000) % 4, "click": click, "propensity": np.full(2_000, 0.25)}
    table |= {f"x{k}": rng.normal(size=2_000) for k in range(9)}
    assert len(dpb_data.read(table).columns["features"]) == 6


def test_columns_that_are_mostly_there_are_features() -> None:
    gaps = np.random.default_rng(0).random(N)
    table = quotes()
    for share, used in ((0.05, True), (0.3, False)):
        reading = dpb_data.read({**table, "age": np.where(gaps < share, np.nan, table["age"])})
        assert ("age" in reading.columns["features"]) == used
        assert ("more than a fifth" in reading.unused.get("age", "")) != used


# ---------------------------------------------------------------------------- properties


SHAPES = {"prices": quotes, "panel": panel, "weeks": weeks, "sets": sets, "wide": wide,
          "survey": survey}  # fmt: skip
FIXED = {"price": "price", "bought": "bought", "units": "bought", "task": "case", "alt": "item",
         "choice": "chosen"}  # fmt: skip


def structure(reading: dpb_data.Reading, names: dict[str, str]) -> Any:
    """Return roles and questions of a reading, with names of columns as before a renaming."""
    roles = {names[name]: role for name, role in reading.roles.items()}
    asked = [(q.topic, len(q.answers), names.get(q.column, q.column)) for q in reading.questions]
    return reading.layout, reading.problem, roles, asked


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(SHAPES)), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_does_not_change_a_reading(name: str, random: Any) -> None:
    table = SHAPES[name]()
    rows = [*range(len(next(iter(table.values()))))]
    random.shuffle(rows)
    columns = [*table]
    random.shuffle(columns)
    shuffled = {column: np.asarray(table[column])[rows] for column in columns}
    same = {column: column for column in table}
    assert structure(dpb_data.read(shuffled), same) == structure(dpb_data.read(table), same)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["prices", "panel", "weeks"]),
    st.lists(st.text("abcdefgxyz", min_size=4, max_size=8), min_size=6, max_size=6, unique=True),
)
def test_other_names_of_columns_without_a_named_role_do_not_change_a_reading(
    name: str, words: list[str]
) -> None:
    table = SHAPES[name]()
    from dpb_data.column_profiles import is_id_name
    from dpb_data.column_roles import ROLES, named_columns

    known = any(named_columns(role, words, {}) for role in ROLES.values())
    assume(not known and not any(map(is_id_name, words)))
    new = {column: column if column in FIXED else word for column, word in zip(table, words)}
    renamed = {new[column]: values for column, values in table.items()}
    back = {after: before for before, after in new.items()}
    before = structure(dpb_data.read(table), {column: column for column in table})
    assert structure(dpb_data.read(renamed), back) == before


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["household", "memberNo", "panelist", "account", "respondent_id", "HHID",
                        "loyalty card", "Kundennummer", "subject", "e-mail", "custno"]),
       st.integers(3, 60), st.integers(0, 100))  # fmt: skip
def test_a_column_named_as_an_id_is_asked_whatever_its_counts(
    name: str, persons: int, seed: int
) -> None:
    ids = np.random.default_rng(seed).integers(0, persons, N)
    reading = dpb_data.read({**quotes(), name: ids})
    assert topics(reading) == ["person"] and reading.questions[0].column == name
    assert name not in reading.columns["features"]
    assert reading.answer(person=name).table().people is not None
    rest = reading.answer(person="none")
    assert rest.table().people is None and name not in rest.columns["features"]


# ----------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("problem", "given_columns", "error", "message"),
    [
        (None, {"price": "prise"}, UnknownNameError,
         "unknown column for price= 'prise'; did you mean 'price'"),
        (None, {"features": ["age", "agee"]}, UnknownNameError, "for features= 'agee'"),
        (None, {"prise": "price"}, ParameterError, "no argument 'prise' .did you mean 'price'"),
        ("pricing", {"outside": "car"}, ParameterError,
         "a table for pricing has no argument 'outside'.*it takes price, bought, offered"),
        (None, {"outside": "car"}, ParameterError, "outside= does not belong to pricing"),
        ("auction", {}, ParameterError, "problem must be one of"),
        (None, {"bounds": {"agee": (0, 1)}}, UnknownNameError, "feature of bounds= 'agee'"),
        (None, {"log_scale": "agee"}, UnknownNameError, "feature of log_scale= 'agee'"),
        (None, {"header": ["a", "b"]}, ParameterError, "header= is for text files"),
        (None, {"header": "yes"}, ParameterError, "header= lists the names"),
        (None, {"price": "price", "case": "age"}, ParameterError, "no table has the arguments"),
    ],
)  # fmt: skip
def test_arguments_are_checked_before_anything_is_read_wrongly(
    problem: str | None, given_columns: Table, error: type[DPBError], message: str
) -> None:
    with pytest.raises(error, match=message):
        dpb_data.read(quotes(), problem, **given_columns)


def test_settings_of_assortments_are_checked() -> None:
    with pytest.raises(
        ParameterError, match=r"outside must be one of \['bus', 'car'\], got 'tram'"
    ):
        dpb_data.read(wide(), outside="tram")
    with pytest.raises(ParameterError, match="revenue must be one of cost, time, got 'fare'"):
        dpb_data.read(wide(), outside="car", revenue="fare")


def test_columns_named_as_persons_come_before_other_ids() -> None:
    table = quotes() | {"store": np.arange(N) % 12, "user": np.arange(N) // 4}
    reading = dpb_data.read(table)
    assert topics(reading) == [] and reading.roles["user"] == "person"
    assert reading.roles["store"] == "numbers of persons or things"
    (question,) = dpb_data.read({**table, "customer": np.arange(N) // 6}).questions
    given_ = [answer.settings["person"] for answer in question.answers]
    assert given_ == ["user", "customer", "none"]


def test_a_reading_is_read_again_with_answers() -> None:
    reading = dpb_data.read(weeks())
    answered = reading.answer(offered=60)
    assert answered.table().digest() == dpb_data.read(reading, offered=60).table().digest()
    assert dpb_data.read(reading) is reading and answered.source is reading.source


# --------------------------------------------------------------------------- text files


def write(path: Path, table: Table, mark: str = ",", head: bool = True, above: str = "") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(above)
        writer = csv.writer(file, delimiter=mark, lineterminator="\n")
        if head:
            writer.writerow(table)
        writer.writerows(zip(*(np.asarray(values).tolist() for values in table.values())))
    return path


def rows_as_json(path: Path, table: Table) -> Path:
    plain = [dict(zip(table, row)) for row in
             zip(*(np.asarray(values).tolist() for values in table.values()))]  # fmt: skip
    lines = "\n".join(map(json.dumps, plain)) if path.suffix == ".jsonl" else json.dumps(plain)
    path.write_text(lines + "\n")
    return path


FILES: dict[str, Callable[[Path, Table], Path]] = {
    "commas": lambda folder, table: write(folder / "a.csv", table),
    "tabs below comments": lambda folder, table: write(
        folder / "a.tsv", table, "\t", above="# exported\n# 2026, by us\n"
    ),
    "a header in a comment": lambda folder, table: write(
        folder / "a.txt", table, ";", head=False, above="# " + ";".join(table) + "\n"
    ),
    "blanks": lambda folder, table: write(folder / "a.dat", table, " "),
    "JSON lines": lambda folder, table: rows_as_json(folder / "a.jsonl", table),
    "a list in JSON": lambda folder, table: rows_as_json(folder / "a.json", table),
}


@pytest.mark.parametrize("name", FILES)
def test_text_files_are_read_like_the_table(name: str, tmp_path: Path) -> None:
    table = quotes()
    reading = dpb_data.read(FILES[name](tmp_path, table))
    same = dpb_data.read(table)
    assert reading.roles == same.roles
    assert reading.table().digest() == same.table().digest()
    assert ("comments" in name or "comment" in name) == any("#" in r for r in reading.repairs)


def test_a_file_without_a_header_is_asked_for_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", quotes(), head=False)
    reading = dpb_data.read(path)
    assert topics(reading) == ["header"] and "line 1 looks like a row" in reading.questions[0].text
    named = reading.answer(header=[*quotes()])
    assert named.table().digest() == dpb_data.read(quotes()).table().digest()
    with pytest.raises(ParameterError, match=r"header= names 2 columns, but .* has 4"):
        reading.answer(header=["price", "bought"])
    with pytest.raises(QuestionError, match="looks like a row"):
        dpb_data.prices(path)
    assert len(dpb_data.prices(path, header=[*quotes()])) == N
    years = write(tmp_path / "years.csv", {"2024": [1, 2], "2025": [3, 4]})
    assert topics(dpb_data.read(years)) == ["header"]
    assert dpb_data.read(years, header="first").names == ("2024", "2025")


def test_lines_are_named_as_in_a_file_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["2.5,1"] * 20
    path.write_text("\n".join(["# a", "price,bought", *rows, "# b", "-3,0", *rows]) + "\n")
    with pytest.raises(DataError, match="line 24: expected price to be a number above 0"):
        dpb_data.prices(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shared |User age:3\n|Action a\n0:1:0.5 |Action b\n", "Vowpal Wabbit's text format"),
        ("1:2:0.4 | a c\n3:0.5:0.2 | b d\n", "Vowpal Wabbit's text format"),
        ("1 |u a b |i c:2\n-1 |u b |i c:3\n", "Vowpal Wabbit's text format.*--dsjson"),
        ("1 0.5 'tag|u a b\n0 1 'x|u b\n", "Vowpal Wabbit's text format"),
        ("1 | a:1 b:2\n0 | c:3 d\n", "Vowpal Wabbit's text format"),
        ('{"price": 1}\n{"price": {"a": 2}}\n', "line 2: price holds"),
        ('{"price": 1}\n{"price": 2\n', "line 2: expected JSON"),
        ("[1, 2]\n", "entry 1: expected an object, got 1"),
    ],
)
def test_other_text_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        dpb_data.read(tmp_path / "a.txt")


@pytest.mark.parametrize("row", ["1 | 2 | 3", "2.5|1|a b", "1 |2 |x", "1 | a b | 2"])
def test_tables_with_bars_are_no_text_format(row: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{row}\n" * 3)
    assert dpb_data.read(tmp_path / "a.txt").questions


def test_decision_logs_of_vowpal_wabbit_are_clicks(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    lines = []
    for k in range(400):
        index = int(rng.integers(2))
        lines.append(json.dumps({
            "_label_cost": -int(rng.random() < 0.5), "_label_probability": 0.5,
            "_labelIndex": index, "a": [index + 1, 2 - index],
            "c": {"User": {"age": k % 7}, "_multi": [{"i": {"id": "x"}}, {"i": {"id": "y"}}]},
        }))  # fmt: skip
    path = tmp_path / "log.dsjson"
    path.write_text("\n".join(lines) + "\n")
    reading = dpb_data.read(path)
    assert reading.layout == "clicks" and topics(reading) == []
    assert reading.columns["features"] == ["User_age"]
    assert len(reading.table()) == 400
    turned = json.loads(lines[1])
    turned["c"]["_multi"].reverse()
    path.write_text("\n".join([*lines, json.dumps(turned)]) + "\n")
    reading = dpb_data.read(path)
    assert topics(reading) == ["item"] and str(reading.questions[0].answers[0]) == "item='i_id'"
    answered = reading.answer(item="i_id")
    assert topics(answered) == [] and answered.table().item_ids.tolist() == ["x", "y"]
    assert len(answered.table()) == 401 and answered.table().name == "log"


# ------------------------------------------------------------------ layouts and other names


def test_a_published_layout_needs_all_of_its_columns() -> None:
    table = dpb_data.synthetic.mode_canada(60)
    whole = dpb_data.read(table, outside="car")
    assert whole.layout.startswith("choices in the layout mode-canada")
    part = {k: v for k, v in table.items() if k != "ovt"}
    reading = dpb_data.read(part, outside="car")
    assert reading.layout == "long choices" and reading.columns["case"] == "case"
    with pytest.raises(DataError, match="features="):
        dpb_data.load_choices(part)


def test_ratings_whose_file_has_a_published_name_are_read_by_their_columns(tmp_path: Path) -> None:
    table = {"user": np.arange(60) % 6, "item": np.arange(60) // 6, "rating": np.arange(60) % 5 + 1}
    reading = dpb_data.read(write(tmp_path / "ratings.csv", table))
    assert reading.layout == "ratings" and topics(reading) == ["rating_range"]
    four = {**quotes(), "x": np.arange(N) % 3}
    reading = dpb_data.read(write(tmp_path / "u.data", four, "\t"))
    assert reading.layout == "prices"


def test_compound_words_name_roles_if_the_values_fit() -> None:
    table = quotes()
    german = {
        "Angebotspreis (€)": [f"{p:.2f}".replace(".", ",") for p in table["price"]],
        "Gebucht?": ["Ja" if b else "Nein" for b in table["bought"]],
        "Preisklasse": table["channel"],
    }
    reading = dpb_data.read(german)
    assert topics(reading) == []
    assert reading.roles["Angebotspreis (€)"] == "price" and reading.roles["Gebucht?"] == "bought"
    np.testing.assert_array_equal(reading.table().price, table["price"])
    assert reading.table().unit == "EUR"
    english = {"price (USD)": table["price"], "bought": table["bought"]}
    assert dpb_data.read(english).table().unit == "USD"
    assert dpb_data.read({**english, "price": table["price"]}, price="price").table().unit == ""


def test_codes_of_a_survey_are_answered_once() -> None:
    table = survey()
    reading = dpb_data.read(table)
    assert "Mood" not in str(reading)
    answered = reading.answer(alternatives={0: "Bus", 1: "Bike"}, none=2, unknown=-1)
    made = answered.table()
    assert made.feature_names == ("Minutes", "Fare") and made.item_ids.tolist() == ["Bus", "Bike"]
    known = table["choice"] != -1
    assert made.n_sets == known.sum()
    expected = np.where(table["choice"] == 2, -1, table["choice"])[known]
    np.testing.assert_array_equal(made.chosen, expected)
    np.testing.assert_array_equal(made.features[::2, 1], table["FareBus"][known])
    assert {answered.roles[f"Mood1{k}"] for k in range(3)} == {"no attribute of an alternative"}
    with_mood = dpb_data.read(
        table, alternatives={0: "Bus", 1: "Bike"}, none=2, unknown=-1, features=["Fare", "Mood10"]
    ).table()
    np.testing.assert_array_equal(with_mood.features[::2, 1], table["Mood10"][known])
    with pytest.raises(ParameterError, match="alternatives= names Tram"):
        dpb_data.read(table, alternatives={0: "Tram", 1: "Ship"})
    with pytest.raises(ParameterError, match="alternatives= lists the alternatives"):
        dpb_data.read(table, alternatives="Bus")


def test_grids_of_names_are_found_by_their_ends_beginnings_or_digits() -> None:
    rng = np.random.default_rng(7)

    def table(names: list[str], codes: int) -> Table:
        frame: Table = {name: np.round(rng.uniform(1, 9, N), 1) for name in names}
        return {"choice": np.arange(N) % codes + 1, **frame}

    def alternatives(table: Table) -> list[list[str]]:
        (question, *_) = dpb_data.read(table).questions
        return [[*answer.settings["alternatives"].values()] for answer in question.answers]

    modes = [f"{m}_{a}" for a in ("TT", "CO", "AV") for m in ("TRAIN", "CAR", "SM")]
    assert alternatives(table(modes, 3))[0] == ["TRAIN", "CAR", "SM"], "AV is an attribute"
    square = [f"{a}{m}" for a in ("Time", "Cost") for m in ("Bus", "Car")]
    assert alternatives(table(square, 2)) == [["Bus", "Car"], ["Time", "Cost"]]
    digits = table([f"{a}{k}" for a in ("cost", "time") for k in (2, 1)], 2)
    digits["choice"] = np.array(["first", "second"])[np.arange(N) % 2]
    assert alternatives(digits) == [["1", "2"]]
    single = table(["Mood10", "Mood11", "unit_cost", "unit_price"], 2)
    with pytest.raises(DataError, match="no columns are named by the values of choice"):
        dpb_data.choices(single, chosen="choice")


def test_units_of_columns_with_digits_are_attributes_if_named() -> None:
    rng = np.random.default_rng(6)
    table = {"choice": rng.integers(1, 3, N)} | {
        f"{a}{k}": np.round(rng.uniform(1, 9, N), 1) for a in ("cost", "time") for k in (1, 2)
    }
    by_name = dpb_data.read(table, features=["cost"], outside=1).table()
    by_list = dpb_data.read(table, alternatives=[1, 2], features=["cost"], outside=1).table()
    assert by_name.digest() == by_list.digest() and by_name.feature_names == ("cost",)
    spaced = {name.replace("1", " 1").replace("2", " 2"): values for name, values in table.items()}
    assert dpb_data.read(spaced, features=["cost"], outside=1).table().digest() == by_name.digest()
    assert topics(dpb_data.read(spaced)) == ["outside"]


def test_alternatives_are_ascending_whatever_the_order_of_rows() -> None:
    for codes in (("car", "bus"), ("bus", "car")):
        assert dpb_data.read(wide(codes), outside="car").table().item_ids.tolist() == ["bus", "car"]


def test_columns_of_digits_stay_answers_beside_attributes_with_a_separator() -> None:
    table = wide(("1", "2")) | {f"Mood{k}": np.arange(N) % 5 for k in (1, 2)}
    table = {name.replace("bus", "1").replace("car", "2"): v for name, v in table.items()}
    reading = dpb_data.read(table, outside=1)
    assert reading.columns["features"] == ["cost", "time"]
    assert reading.roles["Mood1"] == "no attribute of an alternative"


def test_choice_sets_of_two_columns() -> None:
    table = sets()
    rows = {**table, "row": np.arange(len(table["alt"]))}
    (question, *_) = dpb_data.read(rows).questions
    assert [answer.settings["case"] for answer in question.answers] == [["respondent", "task"]]
    made = dpb_data.choices(
        table, case=["respondent", "task"], item="alt", chosen="choice", features=["cost"]
    )
    number = table["respondent"] * 100 + table["task"]
    same = dpb_data.choices(
        {**table, "set": number}, case="set", item="alt", chosen="choice", features=["cost"]
    )
    assert made.digest() == same.digest()
    with pytest.raises(DataError, match=r"alternative of a set once.*case=\[person, task\]"):
        dpb_data.choices(table, case="task", item="alt", chosen="choice", features=["cost"])
    with pytest.raises(ParameterError, match="none= belongs to wide tables"):
        dpb_data.choices(table, case="task", item="alt", chosen="choice", features="cost", none=1)


def test_bad_values_are_named_in_the_dry_run_too() -> None:
    table = quotes()
    table["bought"][7] = -1
    with pytest.raises(DataError, match="row 7: expected bought to be a whole number from 0"):
        dpb_data.read(table)


def test_the_answers_are_words_of_the_command_line() -> None:
    import yaml

    for make, _ in AMBIGUOUS.values():
        for question in dpb_data.read(make()).questions:
            for answer in question.answers:
                words = answer.options()
                assert len(words) == 2 * len(answer.settings)
                values = dict(word.split("=", 1) for word in words if "=" in word)
                for key, text in values.items():
                    assert yaml.safe_load(text) == answer.settings[key]
    odd = dpb_data.Answer({"price": "1e5", "item": "a: b", "features": ["x, y", "no"]}, "")
    assert odd.options() == ["--set", 'price="1e5"', "--set", 'item="a: b"', "--set",
                             'features=["x, y", "no"]']  # fmt: skip


def test_the_page_lists_the_argument_of_every_question() -> None:
    page = Path(__file__).parents[2] / "docs" / "own-data.md"
    section = page.read_text(encoding="utf-8").partition("### Questions about the table")[2]
    table = [line for line in section.partition("\n### ")[0].splitlines() if line.startswith("|")]
    answers = " ".join(line.split("|")[3] for line in table)
    asked = {topic for _, expected in AMBIGUOUS.values() for topic in expected}
    for topic in {*asked, "header", "item"}:
        assert f"`{topic}=" in answers, topic
    assert len(table) - 2 == len({*asked, "header", "item"})
