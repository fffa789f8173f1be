"""Generator of exported tables: one clean table, and what programs and people make of it.

Each entry of `DIRTY` writes the same quotes in another form. Each entry of `WIDE` writes the same
choice sets. Reading must return the clean values, and notes that name what was changed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROWS = 240
COLUMNS: dict[str, Any] = {"price": "price", "bought": "bought", "features": ["age", "day"]}


def quotes() -> dict[str, Any]:
    """Return clean quotes: price, purchase, age and day since 1970."""
    rng = np.random.default_rng(7)
    price = np.round(rng.uniform(900.0, 2500.0, ROWS), 2)
    return {
        "price": price,
        "bought": (rng.random(ROWS) < 1 / (1 + np.exp((price - 1500) / 300))).astype(int),
        "age": rng.integers(18, 80, ROWS).astype(float),
        "day": 19_723.0 + rng.integers(0, 300, ROWS),
    }


class Case(NamedTuple):
    """A dirty form of the quotes.

    Attributes:
        write: Function of the clean table and a folder that returns the source.
        notes: Texts that the notes must contain.
        columns: Arguments of the reader.
        rows: Rows of the clean table that remain, by default all.
    """

    write: Callable[[dict[str, Any], Path], Any]
    notes: tuple[str, ...]
    columns: dict[str, Any]
    rows: Any = slice(None)


def comma(value: float, thousands: str = "") -> str:
    return f"{value:,.2f}".replace(",", "_").replace(".", ",").replace("_", thousands)


def date(day: float, form: str) -> str:
    moment = np.datetime64(int(day), "D").astype(object)
    return f"{moment:{form}}"


def write_lines(
    path: Path, rows: dict[str, list[str]], mark: str = ";", encoding: str = "utf-8"
) -> Path:
    lines = [mark.join(rows), *(mark.join(row) for row in zip(*rows.values()))]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode(encoding))
    return path


def texts(table: dict[str, Any], **changed: list[str]) -> dict[str, list[str]]:
    return {name: [f"{v:g}" if name != "price" else f"{v:.2f}" for v in values]
            for name, values in table.items()} | changed  # fmt: skip


def semicolons(table: dict[str, Any], folder: Path) -> Path:
    return write_lines(folder / "a.csv", texts(table, price=[comma(p) for p in table["price"]]))


def euros(table: dict[str, Any], folder: Path) -> Path:
    prices = [comma(p, ".") + " €" for p in table["price"]]
    return write_lines(folder / "b.csv", texts(table, price=prices))


def dollars(table: dict[str, Any], folder: Path) -> Path:
    prices = [f"${p:,.2f}" for p in table["price"]]
    return write_lines(folder / "c.csv", texts(table, price=prices), "\t")


def dates(table: dict[str, Any], folder: Path) -> Path:
    days = [date(day, "%d.%m.%Y") for day in table["day"]]
    return write_lines(folder / "d.csv", texts(table, day=days))


def words(table: dict[str, Any], folder: Path) -> Path:
    bought = ["Ja" if b else "nein" for b in table["bought"]]
    return write_lines(folder / "e.csv", texts(table, bought=bought), "|", "cp1252")


def holes(table: dict[str, Any], folder: Path) -> Path:
    age = [
        ("", "k.A.", "unknown")[k % 3] if k < 6 else f"{a:g}" for k, a in enumerate(table["age"])
    ]
    return write_lines(folder / "f.csv", texts(table, age=age), ",")


def workbook(table: dict[str, Any], folder: Path) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Quotes of the season"])
    sheet.append([])
    sheet.append([name.title() for name in table])
    for price, bought, age, day in zip(*table.values()):
        moment = np.datetime64(int(day), "D").astype(object)
        sheet.append([float(price), bool(bought), float(age), moment])
    book.save(folder / "g.xlsx")
    return folder / "g.xlsx"


def records(table: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    return [dict(zip(table, row)) for row in zip(*(values.tolist() for values in table.values()))]


def wide_bytes(table: dict[str, Any], folder: Path) -> Path:
    return write_lines(folder / "i.csv", {f" {name.upper()} ": column for name, column in
                       texts(table).items()}, ";", "utf-16")  # fmt: skip


def cut(table: dict[str, Any], folder: Path) -> Path:
    path = write_lines(folder / "j.csv", texts(table), ",")
    path.write_bytes(path.read_bytes()[:-6])
    return path


def titled(table: dict[str, Any], folder: Path) -> Path:
    path = semicolons(table, folder)
    title = b"sep=;\r\n\r\nQuotes, all branches\r\nSeason;;;\r\n"
    path.write_bytes(title + path.read_bytes())
    return path


ALL = COLUMNS
DIRTY = {
    "semicolons and decimal commas": Case(semicolons, ("price: decimal comma read (240",), ALL),
    "euros with dots of thousands": Case(
        euros, ("price: € removed (240", "separators of thousands removed"), ALL
    ),
    "dollars with commas of thousands": Case(
        dollars, ("price: $ removed (240", "separators of thousands removed"), ALL
    ),
    "dates of the continent": Case(dates, ("day: dates read as days since 1970",), ALL),
    "words and an old encoding": Case(words, ("yes and no read as 1 and 0 (240",), ALL),
    "six missing ages": Case(
        holes, ("age: rows without a value left out (6 rows)",), ALL, slice(6, None)
    ),
    "a workbook with a title": Case(
        workbook, ("rows above the header left out (2", "'Price' was read as 'price'"), ALL
    ),
    "a list of records": Case(records, (), ALL),
    "UTF-16 and spaces in the header": Case(
        wide_bytes, ("encoding is utf-16", "' PRICE ' was read as 'price'"), ALL
    ),
    "lines above the header": Case(
        titled, ("rows above the header left out (4", "decimal comma read (240"), ALL
    ),
    "cut in the last line": Case(cut, ("the last line does not end",), ALL, slice(None, -1)),
}


# ------------------------------------------------------------------------------- wide tables

MODES = ("bus", "car", "train")


def choices() -> dict[str, Any]:
    """Return clean choice sets: cost and time ``(n, 3)``, the choice (-1: none), and offers."""
    rng = np.random.default_rng(3)
    cost, time = np.round(rng.uniform(1.0, 9.0, (2, ROWS, 3)), 2)
    return {"cost": cost, "time": time, "chosen": rng.integers(-1, 3, ROWS),
            "offered": np.ones((ROWS, 3), bool)}  # fmt: skip


def after(sets: dict[str, Any]) -> dict[str, Any]:
    """Attribute after the alternative, no text for none."""
    frame = {f"{m}_{a}": sets[a][:, k] for k, m in enumerate(MODES) for a in ("cost", "time")}
    return frame | {"choice": ["none" if c < 0 else MODES[c] for c in sets["chosen"]]}


def before(sets: dict[str, Any]) -> dict[str, Any]:
    """Attribute before the alternative, in other case, as text with decimal commas."""
    frame = {f"{a}.{m.upper()}": [comma(x) for x in sets[a][:, k]]
             for k, m in enumerate(MODES) for a in ("cost", "time")}  # fmt: skip
    return frame | {"choice": [None if c < 0 else MODES[c].title() for c in sets["chosen"]]}


def numbered(sets: dict[str, Any]) -> dict[str, Any]:
    """Alternatives are numbers without a separator."""
    frame = {f"{a}{k + 1}": sets[a][:, k] for k in range(3) for a in ("cost", "time")}
    return frame | {"choice": [str(c + 1) for c in sets["chosen"]]}


def partly(sets: dict[str, Any]) -> dict[str, Any]:
    """Half of the sets have no bus: a column says so, or attributes are missing."""
    sets["offered"][::2, 0] = False
    sets["chosen"][::2] = np.maximum(sets["chosen"][::2], 1)
    frame = after(sets)
    fourth = np.arange(ROWS) % 4 == 0
    frame |= {f"{m}_av": np.ones(ROWS, int) for m in MODES}
    frame["bus_av"] = np.where(fourth, 1, sets["offered"][:, 0])
    frame["bus_cost"] = np.where(fourth, np.nan, frame["bus_cost"])
    return frame


def joined(sets: dict[str, Any]) -> dict[str, Any]:
    """Attribute and alternative are separated by a capital letter; a code says none."""
    frame = {f"{a.title()}{m.title()}": sets[a][:, k]
             for k, m in enumerate(MODES) for a in ("cost", "time")}  # fmt: skip
    return frame | {"choice": ["-1" if c < 0 else MODES[c] for c in sets["chosen"]]}


WIDE: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]] = {
    "after": (after, {}),
    "before": (before, {"none": "missing"}),
    "numbered": (numbered, {"features": ["cost", "time"], "none": 0}),
    "partly": (partly, {}),
    "joined": (joined, {"none": -1}),
}
"""Wide tables, and the arguments that answer their questions."""
