"""Lifetime budgets: filter, odometer, ids, damage, several processes, and crashes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym.errors import (
    BudgetError,
    CheckpointError,
    DataError,
    DPBError,
    MissingExtraError,
    ParameterError,
)
from dpb_gym.privacy import Account, Composition, GaussianEvent, Guarantee, SessionCharges
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.database import PAGE
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.generations import Saved
from dpb_gym.privacy.ledger import TOLERANCE
from dpb_gym.problems.rounds import ProblemInfo
from tests import postgres

EPS = "eps=1,delta=1e-5"
KEY = b"sixteen bytes or more"
examples = settings(max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def server():
    with postgres.server() as running:
        yield running.url


@pytest.fixture(params=["sqlite", "postgres"])
def new_place(request, tmp_path):
    """Return a function that returns the place of a new account, of every kind."""
    names = (f"people-{n}" for n in itertools.count())
    if request.param == "sqlite":
        return lambda: tmp_path / next(names)
    import sqlalchemy

    url = request.getfixturevalue("server")
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    def made():
        name = f"t{uuid.uuid4().hex}"
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"CREATE SCHEMA {name}"))
        return f"{url}&options=-csearch_path%3D{name}"

    return made


def zcdp(rho, unit="user-round", notion="joint"):
    event = GaussianEvent(1.0, (2.0 * rho) ** 0.5)
    return Guarantee(notion, unit, curve=Composition.of(event))


def saved(account, own):
    """Return what a file of this continuation has."""
    return Saved(own.id, own.generation, account.confirm(own))


class Oracle:
    """The filter in plain Python: what each person has spent, and records of each session."""

    def __init__(self, limit):
        self.limit = limit
        self.spent = {}
        self.records = {}

    def charge(self, user, rho):
        total = self.spent.get(user, 0.0) + rho
        if total > self.limit * (1 + TOLERANCE):
            return False
        self.spent[user] = total
        return True

    def admit(self, session, user, rho, once):
        n = self.records.get((session, user), 0)
        if once and n:
            return True
        if not self.charge(user, rho * (n + 1) ** 2 - rho * n**2):
            return False
        self.records[session, user] = n + 1
        return True


users = st.one_of(st.integers(0, 3), st.sampled_from(["Ana", "ana", "José", "0 or 1", "x" * 200]))
costs = st.floats(0.0, 0.4)


# ------------------------------------------------------------------ the filter


@pytest.mark.slow
@examples
@given(batches=st.lists(st.lists(st.tuples(users, costs), max_size=12), max_size=8), keyed=...)
def test_charges_equal_a_filter_in_plain_python(
    new_place, batches: list[list[tuple[int | str, float]]], keyed: bool
):
    place = new_place()
    account = Account(place, "rho=1", key=KEY if keyed else None)
    oracle = Oracle(1.0)
    for batch in batches:
        assert account.charge_all(batch) == [oracle.charge(*charge) for charge in batch]
    for handle in (account, Account(place, key=KEY if keyed else None)):
        for user in (0, 1, 2, 3, "Ana", "ana", "José", "0 or 1", "x" * 200, "never"):
            assert handle.spent(user) == oracle.spent.get(user, 0.0)
        summary = handle.summary()
        assert summary["people"] == sum(rho > 0.0 for rho in oracle.spent.values())
        assert summary["largest_rho"] == max(oracle.spent.values(), default=0.0)
        handle.close()


@pytest.mark.slow
@examples
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.lists(users, max_size=5)), max_size=12))
def test_sessions_equal_a_filter_in_plain_python(new_place, steps):
    account = Account(new_place(), "rho=1")
    oracle = Oracle(1.0)
    rhos = (0.05, 0.11, 0.3, 0.02)
    sessions = [SessionCharges(account, zcdp(rho, unit)) for rho, unit in zip(rhos, UNITS)]
    for number, who in steps:
        expected = [oracle.admit(number, u, rhos[number], number > 1) for u in who]
        assert sessions[number].admit_all(who) == expected
    for user, rho in oracle.spent.items():
        assert account.spent(user) == pytest.approx(rho)
    account.close()


UNITS = ("user-round", "user-round", "user", "user")


@pytest.mark.slow
def test_the_filter_refuses_exactly_what_exceeds_the_lifetime(new_place):
    account = Account(new_place(), "rho=1")
    assert account.charge(5, 0.6) and not account.charge(5, 0.41) and account.charge(5, 0.4)
    assert not account.charge(5, 1e-6) and account.charge(6, 1.0)
    assert [account.spent(user) for user in (5, 6, 10**6)] == [1.0, 1.0, 0.0]
    many = account.charge_all([(n, 0.5) for n in range(1500)])  # more than a statement takes
    assert many.count(False) == 2 and account.spent(1499) == 0.5
    account.close()


@pytest.mark.parametrize("rho", [-0.1, float("nan"), float("inf"), "1", None, True])
def test_a_batch_with_a_cost_out_of_range_charges_nobody(tmp_path, rho):
    account = Account(tmp_path / "people", "rho=1")
    with pytest.raises(ParameterError, match="rho must be"):
        account.charge_all([(1, 0.5), (2, rho)])
    assert account.spent(1) == 0.0


@pytest.mark.parametrize(
    "user",
    [
        -1,
        1.5,
        True,
        None,
        "",
        "  ",
        b"Ana",
        "a\nb",
        "a\0b",
        "a\u200bb",  # Cf
        "a\u2028b",  # a separator of lines
        "x" * 201,
        "\ud800",
        2**53 + 1,
        "A\u030a",
    ],
)
def test_users_are_numbers_and_plain_texts(tmp_path, user):
    account = Account(tmp_path / "people", "rho=1")
    for use in (account.spent, account.epsilon, lambda user: account.charge(user, 0.1)):
        with pytest.raises(ParameterError, match="user must"):
            use(user)
    assert account.summary()["people"] == 0


def test_a_number_and_its_text_are_one_person(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    assert account.charge(7, 0.6) and not account.charge("7", 0.6) and account.charge("07", 0.6)
    assert account.charge(np.int32(7), 0.1) and account.spent("7") == pytest.approx(0.7)


# ------------------------------------------------------------------ keyed hashes


def test_with_a_key_the_database_contains_no_id(tmp_path):
    present = {}
    for key in (None, KEY):
        path = tmp_path / f"people {key is None}"
        account = Account(path, "rho=1", key=key)
        account.charge_all([("ana@shop.example", 0.1), (123456789, 0.2)])
        charges = SessionCharges(account, zcdp(0.1))
        assert charges.admit("bob@shop.example")
        charges.commit()
        content = path.read_bytes() + (tmp_path / f"{path.name}-wal").read_bytes()
        present[key] = [text in content for text in (b"ana@shop", b"bob@shop", b"123456789")]
        account.close()
        assert present[key] == [text in path.read_bytes() for text in (b"ana@", b"bob@", b"123456")]
    assert present == {None: [True] * 3, KEY: [False] * 3}


def test_an_account_opens_with_its_own_key_only(tmp_path):
    keyed = tmp_path / "keyed"
    Account(keyed, "rho=1", key=KEY).charge("Ana", 0.5)
    assert Account(keyed, key=KEY).spent("Ana") == 0.5
    for key, wanted in ((None, "the key that"), (KEY[::-1], "the key that")):
        with pytest.raises(ParameterError, match=wanted):
            Account(keyed, key=key)
    Account(tmp_path / "plain", "rho=1")
    with pytest.raises(ParameterError, match="no key"):
        Account(tmp_path / "plain", key=KEY)
    for key in ("text of sixteen letters", b"short", bytes(65), 5):
        with pytest.raises(ParameterError, match="16 to 64 secret bytes") as error:
            Account(tmp_path / "new", "rho=1", key=key)
        assert "short" not in str(error.value) and "letters" not in str(error.value)
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------ the odometer


def test_the_odometer_covers_every_time_at_which_it_is_read(tmp_path):
    account = Account(tmp_path / "people", EPS)
    # the limit is that of any zCDP mechanism, not the larger one of Gaussian noise
    assert account.limit == pytest.approx(0.030557, rel=1e-4)
    readings = []
    for _ in range(40):
        before = account.epsilon(3)
        assert account.charge(3, account.limit / 40)
        readings.append(account.epsilon(3))
        spent = Composition.of(GaussianEvent(1.0, (2.0 * account.spent(3)) ** 0.5))
        assert readings[-1] >= Guarantee("joint", "user", curve=spent).epsilon(1e-5)
        assert readings[-1] >= before
    # a reading holds for its level at a twentieth of delta
    level = Composition.of(ZCDPEvent(account.limit))
    assert len(set(readings)) == 20 and readings[-1] == epsilon(level, 1e-5 / 20)
    assert account.epsilon(4) == 0.0


def test_the_last_reading_exceeds_the_lifetime_by_6_to_23_percent(tmp_path):
    """docs/account.md and the docstring state the range."""
    excess = {}
    for eps, delta in itertools.product((0.1, 0.3, 1.0, 3.0, 10.0), (1e-9, 1e-7, 1e-6, 1e-5)):
        account = Account(tmp_path / f"{eps} {delta}", Budget.approx(eps, delta))
        assert account.charge(1, account.limit)
        excess[eps, delta] = account.epsilon(1) / eps - 1.0
        account.close()
    assert 0.06 < min(excess.values()) < 0.07
    assert 0.22 < max(excess.values()) < 0.23
    assert round(100 * excess[3.0, 1e-6]) == 12 and round(100 * excess[1.0, 1e-5]) == 17


# ------------------------------------------------------------------ what a database may be


@pytest.mark.parametrize(
    ("unit", "notions", "expected"),
    [
        ("user", ["central"], "central"),
        ("user", ["local"], "local"),
        ("user", ["local", "shuffle", "aggregate"], "aggregate"),
        ("user", ["joint", "local", "anticipating"], "anticipating"),
        # the own action of a customer is in the transcript and in no message
        ("user", ["central", "local"], "joint"),
        ("user", ["shuffle", "central"], "joint"),
        ("user-rewards", ["central", "local"], "central"),
    ],
)
def test_an_account_has_the_strongest_notion_that_its_sessions_imply(
    tmp_path, unit, notions, expected
):
    account = Account(tmp_path / "people.db", lifetime="rho=9", unit=unit)
    for notion in notions:
        account.enter(zcdp(0.1, notion=notion))
    assert account.summary()["notion"] == expected


def test_an_account_keeps_its_lifetime_and_unit(new_place):
    place = new_place()
    with pytest.raises(BudgetError, match="does not exist"):
        Account(place)
    Account(place, EPS).charge(1, 0.01)
    assert Account(place).spent(1) == Account(place, EPS).spent(1) == 0.01
    for other in ({"lifetime": "rho=1"}, {"lifetime": EPS, "unit": "user-rewards"}):
        with pytest.raises(BudgetError, match="cannot be changed"):
            Account(place, **other)
    with pytest.raises(ParameterError, match="unit must be"):
        Account(place, unit="reward")


@pytest.mark.parametrize(
    ("lifetime", "words"),
    [
        ("rho=1@local", "names none"),
        ("eps=1,delta=1e-6@shuffler", "names none"),
        ("eps=1e-300,delta=1e-5", "no rho"),
        ("eps=1,delta=5e-324", "no rho"),
        ("rho=1e300", r"below 1e\+300"),
    ],
)
def test_a_lifetime_that_no_account_can_have_creates_no_file(tmp_path, lifetime, words):
    with pytest.raises(BudgetError, match=words):
        Account(tmp_path / "people.db", lifetime)
    assert os.listdir(tmp_path) == []


def test_other_files_are_refused_and_unchanged(tmp_path):
    old = b'{"format": "dpb-gym account, version 1", "lifetime": "rho=1"}'.ljust(4096)
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("CREATE TABLE customers (name TEXT)")
    foreign.commit()
    foreign.close()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("PRAGMA application_id = 7")
    other.commit()
    other.close()
    (tmp_path / "old").write_bytes(old + bytes(800))
    (tmp_path / "text").write_text("not an account")
    (tmp_path / "folder").mkdir()
    wanted = {
        "old": "old format. Make an account at another path and charge each person",
        "text": "no SQLite file",
        "folder": "no regular file",
        "foreign": "has other tables",
        "other": "made by another program",
    }
    for name, text in wanted.items():
        path = tmp_path / name
        before = path.read_bytes() if path.is_file() else None
        for lifetime in (None, "rho=1"):
            with pytest.raises(DPBError, match=text):
                Account(path, lifetime)
        assert before is None or path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == sorted(wanted)
    with pytest.raises(DataError, match="cannot be created"):
        Account(tmp_path / "no" / "people", "rho=1")
    (tmp_path / "empty").touch()
    with pytest.raises(BudgetError, match="does not exist"):
        Account(tmp_path / "empty")
    assert Account(tmp_path / "empty", "rho=1").charge(1, 1.0)


def test_the_spent_rho_of_an_old_file_is_where_the_message_says(tmp_path):
    spent = np.zeros(10)
    spent[3] = 0.25
    (tmp_path / "old").write_bytes(b'{"format": "dpb-gym account'.ljust(4096) + spent.tobytes())
    with pytest.raises(DataError, match=r"numpy\.fromfile\(PATH, '<f8', offset=4096\)"):
        Account(tmp_path / "old")
    assert np.fromfile(tmp_path / "old", "<f8", offset=4096)[3] == 0.25


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_file(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge(1, 0.1)
    assert {os.stat(file).st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    account.close()
    assert [file.name for file in tmp_path.iterdir()] == ["people"], "the log ends with its users"


DAMAGE = {
    "negative": "UPDATE dpb_people SET spent = -0.5",
    "infinite": "UPDATE dpb_people SET spent = 9e999",
    "more than the lifetime": "UPDATE dpb_people SET spent = 1.001",
    "text for a number": "UPDATE dpb_people SET spent = 'much'",
    "bytes for a number": "UPDATE dpb_people SET spent = x'00'",
    "bytes for a person": "INSERT INTO dpb_people VALUES (x'4142', 0.1)",
    "empty person": "UPDATE dpb_people SET person = '' WHERE person = '1'",
    "lost people": "DELETE FROM dpb_people",
    "no records": "UPDATE dpb_records SET count = 0",
    "negative records": "UPDATE dpb_records SET count = -3",
    "half a record": "UPDATE dpb_records SET count = 1.5",
    "text for a count": "UPDATE dpb_records SET count = 'one'",
    "lost sessions": "DELETE FROM dpb_sessions",
    "generation 0": "UPDATE dpb_sessions SET generation = 0",
    "text for a generation": "UPDATE dpb_sessions SET generation = 'first'",
    "short id": "UPDATE dpb_sessions SET id = 'x'",
    "bytes for a token": "UPDATE dpb_sessions SET token = x'00'",
    "no lifetime": "UPDATE dpb_account SET lifetime = 'for ever'",
    "infinite lifetime": "UPDATE dpb_account SET lifetime = 'rho=inf'",
    "a lifetime without a curator": "UPDATE dpb_account SET lifetime = 'rho=1@local'",
    "unit": "UPDATE dpb_account SET unit = 'reward'",
    "notion": "UPDATE dpb_account SET notion = 'none'",
    "version": "UPDATE dpb_account SET version = 3",
    "no account": "DELETE FROM dpb_account",
    "two accounts": "INSERT INTO dpb_account SELECT 2, 2, lifetime, unit, notion, '', 0 "
    "FROM dpb_account",
    "lost table": "DROP TABLE dpb_records",
    "other table": "CREATE TABLE more (x)",
    "trigger": "CREATE TRIGGER t AFTER UPDATE ON dpb_people BEGIN DELETE FROM dpb_records; END",
    "view": "CREATE VIEW v AS SELECT * FROM dpb_people",
}


def used(path):
    account = Account(path, "rho=1")
    charges = SessionCharges(account, zcdp(0.1))
    assert charges.admit_all([1, "Ana", 1]) == [True] * 3
    account.close()
    return charges


@pytest.mark.parametrize("pages", [True, False], ids=["all checks", "checks of rows"])
@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_rows_are_refused_on_opening(tmp_path, what, pages, monkeypatch):
    if not pages:  # which also checks constraints
        monkeypatch.setattr("dpb_gym.privacy.database.Database.check_pages", lambda self: None)
    path = tmp_path / "people"
    used(path)
    assert Account(path).spent(1) == pytest.approx(0.4)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute(DAMAGE[what])
    raw.close()
    with pytest.raises(DataError, match=r"is damaged|has other tables"):
        Account(path)


def test_records_that_are_deleted_are_not_noticed(tmp_path):
    """A limit of docs/account.md: who can write the file can reset what people have spent."""
    path = tmp_path / "people"
    account = Account(path, "rho=1")
    account.charge_all([(1, 0.5), (2, 0.5)])
    account.close()
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM dpb_people WHERE person = '1'")
    raw.close()
    account = Account(path)
    assert account.spent(1) == 0.0 and account.spent(2) == 0.5
    account.close()


def test_rows_out_of_order_are_refused_on_opening(tmp_path):
    """A look-up would miss a person, who could spend her lifetime again."""
    path = tmp_path / "people"
    account = Account(path, "rho=1")
    account.charge_all([(user, 1.0) for user in range(10, 30)])
    account.close()
    with sqlite3.connect(path) as raw:
        (page,) = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'dpb_people'"
        ).fetchone()
    raw.close()
    content = bytearray(path.read_bytes())
    first = (page - 1) * PAGE + 8  # the pointers to the rows of a leaf
    content[first : first + 2], content[first + 6 : first + 8] = (
        content[first + 6 : first + 8],
        content[first : first + 2],
    )
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged: row not in PRIMARY KEY order"):
        Account(path)


def test_a_missing_number_is_refused(tmp_path):
    """SQLite stores NaN as NULL, which its constraints refuse; a forger can lift them."""
    path = tmp_path / "people"
    used(path)
    with sqlite3.connect(path) as raw:
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute("UPDATE dpb_people SET spent = :nan", {"nan": float("nan")})
        (whole,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'dpb_people'").fetchone()
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'spent DOUBLE PRECISION NOT NULL', "
            "'spent DOUBLE PRECISION') WHERE name = 'dpb_people'"
        )
    raw.close()
    with pytest.raises(DataError, match="other tables"):
        Account(path)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE dpb_people SET spent = NULL WHERE person = '1'")
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'dpb_people'", (whole,))
    raw.close()
    with pytest.raises(DataError, match="is damaged"):
        Account(path)


@pytest.mark.parametrize(
    "what", ["UPDATE dpb_people SET spent = -1", "UPDATE dpb_people SET spent = 9e999"]
)
def test_damage_after_opening_is_found_by_the_next_charge(tmp_path, what):
    charges = used(tmp_path / "people")
    with sqlite3.connect(tmp_path / "people") as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute(what)
    raw.close()
    account = charges.account
    for use in (lambda: account.charge(1, 0.1), lambda: charges.admit(1), lambda: account.spent(1)):
        with pytest.raises(DataError, match="is damaged: person '1' has spent"):
            use()


def test_damaged_counts_are_found_by_the_next_charge(tmp_path):
    charges = used(tmp_path / "people")
    with sqlite3.connect(tmp_path / "people") as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE dpb_records SET count = -1")
    raw.close()
    with pytest.raises(DataError, match="records of a person"):
        charges.admit(1)


@pytest.mark.slow
@examples
@given(data=st.data())
def test_changed_bytes_raise_typed_errors_or_leave_an_account(tmp_path, data, monkeypatch):
    monkeypatch.setattr("dpb_gym.privacy.database.SECONDS", 0.0)
    path = tmp_path / f"people-{uuid.uuid4().hex}"
    used(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 30))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.none(), st.integers(0, len(content))))
    path.write_bytes(content[:end])
    try:
        account = Account(path)
        account.charge(1, 0.1)
        assert 0.0 <= account.spent(1) <= 1.0 * (1 + TOLERANCE)
        account.close()
    except DPBError:
        pass


def test_a_url_is_one_of_postgresql():
    pytest.importorskip("sqlalchemy")
    for url in ("sqlite:///people.db", "mysql://host/name", "://"):
        with pytest.raises(ParameterError, match="URL"):
            Account(url, "rho=1")


def test_a_password_is_in_no_message():
    pytest.importorskip("psycopg")
    with pytest.raises(DataError, match=r"cannot be used") as error:
        Account("postgresql://me:opensesame@/nowhere?host=/no/such/folder", "rho=1")
    assert "opensesame" not in str(error.value)


def test_a_url_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtraError, match=r"dpb-gym\[postgres\]"):
        Account("postgresql://host/name", "rho=1")


@pytest.mark.parametrize("new_place", ["postgres"], indirect=True)
def test_damage_in_postgresql(new_place):
    import sqlalchemy

    for statement in (
        "UPDATE dpb_people SET spent = 'NaN'",
        "UPDATE dpb_people SET spent = 'Infinity'",
        "UPDATE dpb_people SET spent = -1",
        "UPDATE dpb_people SET spent = 1.001",
        "DELETE FROM dpb_people",
        "DROP TABLE dpb_records",
        "UPDATE dpb_account SET commits = NULL",
        "UPDATE dpb_sessions SET generation = NULL",
        "UPDATE dpb_records SET count = NULL",
        "CREATE FUNCTION reset() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.spent := 0; RETURN NEW; END';"
        "CREATE TRIGGER reset BEFORE UPDATE ON dpb_people FOR EACH ROW EXECUTE FUNCTION reset()",
        "ALTER TABLE dpb_people ALTER COLUMN spent TYPE real",
        "ALTER TABLE dpb_sessions ADD COLUMN closed TEXT",
        "CREATE RULE reset AS ON UPDATE TO dpb_people DO INSTEAD NOTHING",
        "ALTER TABLE dpb_people RENAME TO people;"
        "CREATE VIEW dpb_people AS SELECT person, 0.0::double precision AS spent FROM people",
    ):
        place = new_place()
        used(place)
        engine = sqlalchemy.create_engine(place.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            for table, column in (
                ("dpb_people", "spent"),
                ("dpb_records", "count"),
                ("dpb_account", "commits"),
                ("dpb_sessions", "generation"),
            ):
                change = f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL"
                connection.execute(sqlalchemy.text(change))
                for (name,) in connection.execute(
                    sqlalchemy.text(
                        "SELECT conname FROM pg_constraint "
                        f"WHERE conrelid = '{table}'::regclass AND contype = 'c'"
                    )
                ).fetchall():
                    connection.execute(
                        sqlalchemy.text(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
                    )
            # a colon before a name would be a parameter
            connection.exec_driver_sql(statement)
        engine.dispose()
        with pytest.raises(DataError, match=r"is damaged|has other tables"):
            Account(place)


# ------------------------------------------------------------------ processes, threads, crashes


def _charge(place, wanted, admitted):
    account = Account(place)
    taken = 0
    for _ in range(wanted // 8):
        taken += sum(account.charge_all([(7, 1e-3), (8, 1e-4)] * 4)[::2])
    account.commit()
    admitted.put(taken)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_that_share_an_account_do_not_overspend(new_place, start):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"processes do not {start} here")
    place = new_place()
    account = Account(place, "rho=1")
    account.charge(0, 0.1)
    context = multiprocessing.get_context(start)
    admitted = context.Queue()
    workers = [context.Process(target=_charge, args=(place, 1600, admitted)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert sum(admitted.get(timeout=120) for _ in workers) == 1000
    for worker in workers:
        worker.join()
    assert account.spent(7) == pytest.approx(1.0) and account.spent(0) == 0.1
    assert account.spent(8) == pytest.approx(0.16)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_fork_shares_no_connection_and_no_lock(new_place):
    """SQLite forbids to use or close a connection in a forked process."""
    account = Account(new_place(), "rho=1")
    account.charge(1, 0.1)
    inside, forked = threading.Event(), threading.Event()

    def hold():  # a transaction of another thread, at the time of the fork
        with account._database.transaction() as now:
            inside.set()
            forked.wait(0.2)
            account._write_spent(now, {}, {"2": 0.5})

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    child = os.fork()
    if not child:
        code = 1
        if account._database._connection is None:
            worker = threading.Thread(target=lambda: account.charge(1, 0.1))
            worker.start()
            worker.join(20)
            code = 2 * worker.is_alive() + 4 * (account.spent(2) != 0.5)
        os._exit(code)
    forked.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert account.spent(1) == pytest.approx(0.2) and account.charge(1, 0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_file_that_was_replaced_stops_the_account_after_a_fork(tmp_path):
    path = tmp_path / "people"
    Account(path, "rho=1").close()
    shutil.copy(path, tmp_path / "older")
    account = Account(path)
    assert account.charge(7, 1.0)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "older").replace(path)
    for call in (lambda: account.charge(7, 1.0), account.commit):
        with pytest.raises(DataError, match="deleted, renamed or replaced while it was open"):
            call()


def test_a_link_to_another_file_stops_the_account(tmp_path):
    for year in ("2025", "2026"):
        Account(tmp_path / year, "rho=1").close()
    link = tmp_path / "people"
    link.symlink_to("2025")
    first = Account(link)
    assert first.charge(7, 0.5)
    link.unlink()
    link.symlink_to("2026")
    second = Account(link)
    assert second.charge(7, 1.0)
    with pytest.raises(DataError, match="deleted, renamed or replaced while it was open"):
        first.charge(7, 0.5)


def test_threads_that_share_an_account_do_not_overspend(new_place):
    account = Account(new_place(), "rho=1")
    admitted = []

    def charge():
        admitted.extend(account.charge(7, 1 / 64) for _ in range(50))

    threads = [threading.Thread(target=charge) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 150 and sum(admitted) == 64


def test_an_account_made_by_two_processes_at_once_is_one(tmp_path):
    script = (
        "import sys; from dpb_gym.privacy import Account\n"
        "sys.stdin.readline()\n"
        "print(Account(sys.argv[1], 'rho=1').charge(7, 0.6))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "people")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    made = [subprocess.Popen(command, **pipes) for _ in range(2)]
    answers = []
    for process in made:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in made:
        answers.append(process.communicate()[0].strip())
    assert sorted(answers) == ["False", "True"]
    assert Account(tmp_path / "people").spent(7) == 0.6


KILLED = """
import os, sys
from dpb_gym.privacy import Account, Composition, GaussianEvent, Guarantee, SessionCharges
account = Account(sys.argv[1], "rho=1")
guarantee = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(1.0, 0.02 ** 0.5)))
charges = SessionCharges(account, guarantee)
print(charges.own.id, flush=True)
for n in range(10**6):
    charges.admit_all([n, "Ana"])
    print(n, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_charges_that_returned_survive_kill_9(tmp_path):
    path = tmp_path / "people"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    lines = [process.stdout.readline() for _ in range(200)]
    process.kill()
    lines += process.stdout.readlines()
    process.wait()
    if not lines[-1].endswith("\n"):
        lines.pop()
    last = int(lines[-1])
    account = Account(path)
    assert last >= 198
    assert all(account.spent(n) == pytest.approx(0.01) for n in range(last + 1))
    assert account.summary()["people"] <= last + 3, "at most one more transaction took effect"
    assert account.spent("Ana") == pytest.approx(1.0)
    with account._database.transaction(write=False) as now:
        counts = dict(now.rows("SELECT person, count FROM dpb_records"))
    assert counts["Ana"] == 10 and all(counts[str(n)] == 1 for n in range(last + 1))


def statements(account):
    """Return the list to which statements are added as SQLite executes them."""
    account.spent(0)
    executed = []
    account._database._connection.set_trace_callback(executed.append)
    return executed


def test_a_charge_while_another_thread_commits_needs_a_commit(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge(1, 0.5)
    transaction = account._database.transaction

    @contextlib.contextmanager
    def with_a_charge_after_it(**options):
        with transaction(**options) as now:
            yield now
        account._database.transaction = transaction
        account.charge(2, 0.5)

    account._database.transaction = with_a_charge_after_it
    account.commit()
    executed = statements(account)
    account.commit()
    assert "COMMIT" in executed, "the second charge is not on the disk"
    executed.clear()
    account.commit()
    assert not executed


def test_a_batch_is_one_transaction_and_a_commit_waits_for_the_disk_once(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    executed = statements(account)
    account.charge_all([(n, 0.25) for n in range(64)])
    assert executed.count("BEGIN IMMEDIATE") == executed.count("COMMIT") == 1
    assert "PRAGMA synchronous = NORMAL" in executed and "PRAGMA synchronous = FULL" not in executed
    executed.clear()
    account.commit()
    assert executed[0] == "PRAGMA synchronous = FULL" and executed.count("COMMIT") == 1
    assert any(line.startswith("UPDATE") for line in executed), (
        "without a change nothing is waited for"
    )
    executed.clear()
    account.commit()  # nothing was charged since
    assert not executed


def test_committed_charges_are_in_the_file_or_its_log(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge_all([(1, 0.25), (2, 0.5)])
    account.commit()
    for name in ("people", "people-wal"):  # as after a power failure
        shutil.copy(tmp_path / name, tmp_path / name.replace("people", "lost"))
    account.charge(2, 0.1)
    recovered = Account(tmp_path / "lost")
    assert [recovered.spent(user) for user in (1, 2)] == [0.25, 0.5]
    # a torn end of the log loses whole transactions only
    with open(tmp_path / "people-wal", "rb") as file:
        log = file.read()
    (tmp_path / "torn").write_bytes((tmp_path / "people").read_bytes())
    (tmp_path / "torn-wal").write_bytes(log[:-100])
    assert Account(tmp_path / "torn").spent(2) == 0.5


def test_a_failed_transaction_charges_nobody_and_a_failed_commit_is_tried_again(
    tmp_path, monkeypatch
):
    charges = used(tmp_path / "people")
    account = charges.account
    with sqlite3.connect(tmp_path / "people", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("dpb_gym.privacy.database.SECONDS", 0.05)
        account.close()
        for use in (lambda: account.charge(3, 0.1), lambda: charges.admit(3), charges.commit):
            with pytest.raises(DataError, match="another process has written"):
                use()
        other.execute("ROLLBACK")
    other.close()
    assert account.spent(3) == 0.0
    assert charges.admit(3) and account.spent(3) == pytest.approx(0.1)
    account.charge(4, 0.1)
    executed = statements(account)
    account._database._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(DataError, match="cannot be used"):
        account.commit()
    account._database._connection.execute("PRAGMA query_only = OFF")
    executed.clear()
    account.commit()
    assert "COMMIT" in executed, "a failed commit is not forgotten"


# ------------------------------------------------------------------ sessions


def test_n_records_cost_as_much_as_a_group_of_n(new_place):
    account = Account(new_place(), "rho=1")
    rounds = SessionCharges(account, zcdp(0.1))
    assert [rounds.admit(4) for _ in range(4)] == [True, True, True, False]
    assert account.spent(4) == pytest.approx(0.9)
    # a session per user pays once, whatever the number of rounds
    whole = SessionCharges(account, zcdp(0.1, "user"))
    assert all(whole.admit(4) for _ in range(9)) and account.spent(4) == pytest.approx(1.0)
    assert not SessionCharges(account, zcdp(0.1, "user")).admit(4)
    # the account counts the records: a continuation goes on with them, whatever its file has
    first = SessionCharges(account, zcdp(0.1))
    assert first.admit(5)
    own = account.advance(saved(account, first.own), zcdp(0.1))
    assert SessionCharges(account, zcdp(0.1), own).admit(5)
    assert account.spent(5) == pytest.approx(0.4)


def test_sessions_must_protect_what_the_account_protects(new_place):
    place = new_place()
    people = Account(place, "rho=1")
    rewards = Account(new_place(), "rho=1", unit="user-rewards")
    for unit in ("reward", "user-rewards"):
        rewards.enter(zcdp(0.1, unit))
        with pytest.raises(BudgetError, match="does not follow"):
            people.enter(zcdp(0.1, unit))
    people.enter(zcdp(0.1, "user-round", "central"))
    assert people.summary()["notion"] == "central"
    people.enter(zcdp(0.1, "user", "anticipating"))
    people.enter(zcdp(0.1, "user", "joint"))
    assert Account(place).summary()["notion"] == "anticipating"
    with pytest.raises(BudgetError, match="does not follow"):
        people.enter(Guarantee.none())


def test_a_continuation_must_be_charged_as_before(new_place):
    account = Account(new_place(), "rho=1")
    file = saved(account, account.enter(zcdp(0.1)))
    for other in (zcdp(0.05), zcdp(0.1, "user")):
        with pytest.raises(CheckpointError, match="guarantee in the file is not the one"):
            account.advance(file, other)
    with pytest.raises(BudgetError, match="does not follow"):
        account.advance(file, Guarantee.none())
    assert account.advance(file, zcdp(0.1)).generation == 2


def test_a_session_that_goes_on_elsewhere_charges_and_commits_nothing(new_place):
    account = Account(new_place(), "rho=1")
    old = SessionCharges(account, zcdp(0.1))
    assert old.admit(1)
    new = SessionCharges(account, zcdp(0.1), account.advance(saved(account, old.own), zcdp(0.1)))
    for use in (lambda: old.admit(1), lambda: old.admit_all([]), old.commit):
        with pytest.raises(CheckpointError, match="goes on elsewhere"):
            use()
    assert account.spent(1) == pytest.approx(0.1)
    assert new.admit(1) and account.spent(1) == pytest.approx(0.4)


def test_of_two_copies_in_memory_the_first_goes_on(new_place):
    """A restored image of a machine has the generation, but an older token."""
    account = Account(new_place(), "rho=1")
    one = SessionCharges(account, zcdp(0.1))
    two = SessionCharges(account, zcdp(0.1), type(one.own)(one.own.id, 1, set(one.own.tokens)))
    assert two.admit(1) and two.admit(2)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        one.admit(3)
    two.commit()


def test_a_session_goes_on_after_a_transaction_of_unknown_outcome(new_place, monkeypatch):
    account = Account(new_place(), "rho=1")
    charges = SessionCharges(account, zcdp(0.1))
    write = Account._write_spent

    def failing(now, before, spent):
        write(now, before, spent)
        raise KeyboardInterrupt  # between the changes and the end of the transaction

    monkeypatch.setattr(Account, "_write_spent", staticmethod(failing))
    with pytest.raises(KeyboardInterrupt):
        charges.admit(1)
    monkeypatch.undo()
    assert account.spent(1) == 0.0 and charges.admit(1)
    assert account.spent(1) == pytest.approx(0.1)


def test_a_path_is_opened_only_if_its_account_holds_the_session(tmp_path):
    charges = used(tmp_path / "people")
    opened = Account.holding(tmp_path / "people", charges.own.id)
    assert opened.spent(1) == pytest.approx(0.4)
    opened.close()
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("PRAGMA journal_mode = WAL")
    foreign.execute("CREATE TABLE dpb_sessions (id TEXT)")
    foreign.execute("INSERT INTO dpb_sessions VALUES (?)", (charges.own.id,))
    foreign.commit()
    foreign.close()
    (tmp_path / "text").write_text("text")
    keyed = Account(tmp_path / "keyed", "rho=1", key=KEY)
    hidden = keyed.enter(zcdp(0.1))
    keyed.close()
    before = sorted(os.listdir(tmp_path))
    for path in ("foreign", "text", "missing", "missing/people", ".", "keyed"):
        assert Account.holding(tmp_path / path, charges.own.id) is None
    assert Account.holding(tmp_path / "keyed", hidden.id) is None
    assert Account.holding(tmp_path / "people", uuid.uuid4().hex) is None
    for url in ("postgresql://host/name", "mysql://host/name"):
        assert Account.holding(url, charges.own.id) is None
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.slow
@pytest.mark.parametrize("account", [True, False])
def test_a_number_that_an_agent_cannot_count_by_is_refused_before_it_decides(tmp_path, account):
    """The agent would fail on the response, which is charged and lost then."""
    people = Account(tmp_path / "people", "rho=1")
    if account:
        shop = ProblemInfo("pricing", 400, 2, (0.0, 1.0), demand="logistic", zeta=4.0)
        session = dpb_gym.serve(
            "one-pass-pricing", "rho=0.1", shop, noise="seeded", warm=False,
            account=people, max_rounds_per_user=2,
        )  # fmt: skip
        given = {"features": [0.5]}
    else:
        identified = dpb_gym.make_problem("DPB/Recommendation-v0", interactions_per_user=8)
        session = dpb_gym.serve(
            "one-pass-linear", "rho=0.1", identified, noise="seeded", warm=False,
            max_rounds_per_user=2,
        )  # fmt: skip
        shape = session.problem.n_candidates, session.problem.dim
        given = {"features": np.full(shape, 0.1), "arms": np.arange(shape[0])}
    for user in (2**26, np.int64(2**40)):
        with pytest.raises(ParameterError, match=f"user must be an integer in 0..{2**26 - 1}"):
            session.decide(**given, user=user)
    session.observe(session.decide(**given, user=5)[0], 1)
    session.decide(**given, user=3)
    assert session.lost == () and session.decisions == 2


# ------------------------------------------------------------------ several machines


PRICES = ProblemInfo("pricing", 400, 2, (0.0, 1.0), demand="logistic", zeta=4.0)
ONCE = {"noise": "seeded", "seed": 1, "warm": False}


def patiently(call):
    """A connection that broke is opened again by the next call."""
    with contextlib.suppress(DataError):
        return call()
    return call()


@pytest.mark.slow
@pytest.mark.parametrize("served", [False, True], ids=["in memory", "announced"])
def test_a_crash_that_takes_charges_back_ends_the_session(served):
    """PostgreSQL says that a charge is committed up to .6 s before it is on the disk."""
    with postgres.server() as running:
        account = Account(running.url, lifetime="rho=1")
        session = dpb_gym.serve("one-pass-pricing", "rho=1", PRICES, account=account, **ONCE)
        session.observe(session.decide([0.5], user=1)[0], 1)
        if served:  # as in a service, whose tokens count
            session.confirm()
            session._charges.own.announce = lambda token: None
        for user in range(2, 105):
            session.observe(session.decide([0.5], user=user)[0], 1)
        session.confirm()
        running.crash()  # nothing is lost
        number = patiently(lambda: session.decide([0.5], user=105))[0]
        session.observe(number, 1)
        for attempt in range(20):
            first, person = 200 + 2 * attempt, 201 + 2 * attempt
            session.confirm()
            session.observe(session.decide([0.5], user=first)[0], 1)
            session.observe(session.decide([0.5], user=person)[0], 1)
            account.commit()  # of all charges but the next one
            session.observe(session.decide([0.5], user=person + 1)[0], 1)
            assert account.spent(first) > 0.9 < account.spent(person)
            running.crash()
            spent = patiently(lambda person=person: account.spent(person))
            assert account.spent(first) > 0.9
            if spent < 0.9:
                break
        else:
            pytest.skip("each charge was on the disk before the crash")
        for _ in range(2):
            with pytest.raises(CheckpointError, match="lost the newest charges in a crash"):
                patiently(lambda: session.decide([0.5], user=300))
        if served:
            session._charges.own.tokens = {next(iter(session._charges.own.tokens))[:16] + ".*"}
            with pytest.raises(CheckpointError, match="lost the newest ones in a crash"):
                session.confirm()


def test_a_session_made_again_from_its_agent_counts_on(new_place):
    account = Account(new_place(), "rho=5")
    session = dpb_gym.serve("one-pass-pricing", "rho=0.1", PRICES, account=account, **ONCE)
    for again in (False, True):
        if again:
            session = dpb_gym.Session(session.agent, session.problem, account=account)
        for _ in range(2):
            session.observe(session.decide([0.5], user=7)[0], 1)
    session.decide([0.5], user=8)
    assert account.spent(7) == pytest.approx(16 * 0.1)
    with pytest.raises(CheckpointError, match="no record of this session: another account"):
        dpb_gym.Session(session.agent, session.problem, account=Account(new_place(), "rho=5"))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_for_some_texts_only_is_refused(encoding):
    with (
        postgres.server(encoding) as running,
        pytest.raises(DataError, match=f"stores texts as {encoding}.*ENCODING 'UTF8'"),
    ):
        Account(running.url, "rho=1")


@pytest.mark.parametrize("new_place", ["postgres"], indirect=True)
def test_a_session_of_a_shared_account_goes_on_once_on_any_machine(new_place, tmp_path):
    """Two objects of one account stand for two machines, which share nothing else."""
    place = new_place()
    shop = ProblemInfo("pricing", 400, 2, (0.0, 1.0), demand="logistic", zeta=4.0)
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=0.1", shop, noise="seeded", warm=False,
        account=Account(place, "rho=1", key=KEY),
    )  # fmt: skip
    for user in ("Ana", "bob", "Ana"):
        session.observe(session.decide([0.5], user=user)[0], 1)
    session.save(tmp_path / "session")
    assert b"postgresql" not in (tmp_path / "session").read_bytes()
    with pytest.raises(CheckpointError, match="Give account="):
        dpb_gym.Session.load(tmp_path / "session")
    with pytest.raises(CheckpointError, match="no record of this session"):
        dpb_gym.Session.load(tmp_path / "session", account=Account(new_place(), "rho=1"))
    other = Account(place, key=KEY)
    later = dpb_gym.Session.load(tmp_path / "session", account=other)
    with pytest.raises(CheckpointError, match="loaded before"):
        dpb_gym.Session.load(tmp_path / "session", account=Account(place, key=KEY))
    later.observe(later.decide([0.5], user="bob")[0], 1)
    later.decide([0.5], user="bob")
    # the last record of Ana's two was learnt after the load, and bob's second here
    assert other.spent("Ana") == pytest.approx(0.4)
    assert other.spent("bob") == pytest.approx(0.4)


class RunningSums(dpb_gym.SingleAgent):
    """An agent whose sum is another one after every record."""

    protects = ("central", "reward")

    def begin(self):
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    def act(self, context):
        return int((context.features @ self.sums.value).argmax())

    def observe(self, context, action, feedback):
        self.sums.add(feedback.reward, along=context.features[action])


class ReleasesInAct(dpb_gym.Agent):
    """An agent whose sum is released by `act`, after every fifth record."""

    protects = ("central", "reward")

    def begin(self, problem, streams, curator):
        self.sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0))
        self.records = 0

    def act(self, context):
        if self.records % 5 == 4:
            self.sums.release()
        return (context.features @ self.sums.value[0]).argmax(axis=1)

    def observe(self, context, action, feedback):
        self.sums.add(feedback.reward, along=context.features[:, action[0]])
        self.records += 1


@pytest.mark.parametrize(
    "agent", [RunningSums, ReleasesInAct, "jdp-lin-ucb", "one-pass-linear-joint"]
)
def test_a_session_commits_before_what_depends_on_a_new_release(tmp_path, monkeypatch, agent):
    account = Account(
        tmp_path / "people", "rho=10", unit="user" if isinstance(agent, str) else "user-rewards"
    )
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=60, dim=2, n_candidates=3)
    session = dpb_gym.serve(
        agent, "rho=1", problem, noise="seeded", seed=1, account=account, warm=False
    )
    commits = 0
    commit = SessionCharges.commit

    def counted(charges):
        nonlocal commits
        commits += 1
        commit(charges)

    monkeypatch.setattr(SessionCharges, "commit", counted)
    curator = session.agent.curator
    (sums, *_) = [r for each in (curator, *curator.parts.values()) for r in each.releasers]
    released = np.asarray(sums.value).copy()
    changes = 0
    for user in range(30):
        before = commits
        decision, _ = session.decide(np.eye(3, 2), user=user)
        changed = (sums.value != released).any()
        assert commits > before or not changed
        changes += changed
        released = np.asarray(sums.value).copy()
        session.observe(decision, 1.0)
    assert changes >= 2
    # no commit in rounds between the releases of a planned sum; the first decision has one
    assert agent != "one-pass-linear-joint" or commits <= changes + 1


def test_a_file_with_two_names_is_refused(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge(7, 0.5)
    account.close()
    os.link(tmp_path / "people", tmp_path / "same")
    for name in ("people", "same"):
        with pytest.raises(DataError, match="hard link"):
            Account(tmp_path / name)


@pytest.mark.parametrize("change", ["deleted", "renamed", "replaced"])
def test_an_account_that_leaves_its_place_stops(tmp_path, change):
    account = Account(tmp_path / "people", "rho=1")
    assert account.charge(7, 0.5)
    if change == "deleted":
        (tmp_path / "people").unlink()
    else:
        (tmp_path / "people").rename(tmp_path / "moved")
    if change == "replaced":
        Account(tmp_path / "people", "rho=1").close()
    with pytest.raises(DataError, match="was deleted, renamed or replaced"):
        account.charge(7, 0.1)


def test_a_trigger_with_a_reserved_name_is_refused(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge(7, 0.5)
    account.close()
    with sqlite3.connect(tmp_path / "people") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        trigger = "CREATE TRIGGER sqlite_x AFTER UPDATE ON dpb_people BEGIN SELECT 1; END"
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('trigger', 'sqlite_x', 'dpb_people', 0, ?)",
            (trigger,),
        )
    with pytest.raises(DataError):
        Account(tmp_path / "people")


def test_one_name_has_one_form(tmp_path):
    """The decomposed form of a letter looks the same, and would be another person."""
    account = Account(tmp_path / "people.db", "rho=1")
    account.charge("\u00c5sa", 0.5)
    with pytest.raises(ParameterError, match=r"give unicodedata\.normalize\('NFC', user\)"):
        account.charge("A\u030asa", 0.5)
    assert account.spent("\u00c5sa") == 0.5


@pytest.mark.parametrize("number", [-5, 0.5, "1"])
def test_a_number_of_commits_is_checked(tmp_path, number):
    path = tmp_path / "people.db"
    Account(path, "rho=1").close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE dpb_account SET commits = ?", (number,))
        file.commit()
    if number == "1":  # the column makes it a number
        Account(path).close()
        return
    with pytest.raises(DataError, match="a number of commits below 0"):
        Account(path)


@contextlib.contextmanager
def full_disk(largest):
    """Let no file of this process grow beyond a number of bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("committed", [False, True])
def test_a_close_on_a_full_disk_closes_and_loses_no_charge(tmp_path, committed):
    path = tmp_path / "people"
    account = Account(path, "rho=1")
    assert all(account.charge_all([(n, 0.5) for n in range(2000)]))
    if committed:
        account.commit()
    # without room for the commit, or for what is copied from the log to the file
    with full_disk(path.stat().st_size), pytest.raises(DataError):
        account.close()
    assert account._database._connection is None
    # the error says that the charges are in the file and its log together
    assert (tmp_path / "people-wal").exists()
    assert Account(path).summary()["people"] == 2000
    account.close()
    shutil.copy(path, tmp_path / "copy")
    assert Account(tmp_path / "copy").summary()["people"] == 2000


def test_the_file_of_the_last_close_has_all_charges(tmp_path):
    first = Account(tmp_path / "people", "rho=1")
    second = Account(tmp_path / "people")
    assert first.charge(7, 0.5)
    first.close()
    assert (tmp_path / "people-wal").exists()
    second.close()
    assert not (tmp_path / "people-wal").exists()
    shutil.copy(tmp_path / "people", tmp_path / "copy")
    assert Account(tmp_path / "copy").spent(7) == 0.5


def test_a_file_that_is_written_over_in_place_forgets(tmp_path):
    """A limit: file and log keep their places, so that nothing is noticed."""
    path = tmp_path / "people"
    account = Account(path, "rho=5")
    session = dpb_gym.serve("one-pass-pricing", "rho=0.1", PRICES, account=account, **ONCE)
    session.save(tmp_path / "session")
    account.close()
    older = path.read_bytes()
    assert account.charge(7, 0.5)
    dpb_gym.Session.load(tmp_path / "session", account=account)
    account._database.empty_log()
    path.write_bytes(older)
    account.close()
    again = Account(path)
    assert again.spent(7) == 0.0
    assert dpb_gym.Session.load(tmp_path / "session", account=again).decisions == 0


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("change", ["deleted", "replaced", "deleted behind a link"])
def test_a_deleted_log_stops_the_account(tmp_path, suffix, change):
    """Without its log a file looks as before the last charges, and two processes share no lock."""
    path = tmp_path / "people"
    if change == "deleted behind a link":
        path = tmp_path / "link"
        path.symlink_to("people")
        (tmp_path / "people").touch()
    account = Account(path, "rho=1")
    assert account.charge(7, 0.5)
    log = tmp_path / f"people{suffix}"
    content = log.read_bytes()
    log.unlink()
    if change == "replaced":
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").rename(log)
    for call in (lambda: account.charge(7, 0.5), lambda: account.spent(7), account.commit):
        with pytest.raises(DataError, match="its log was deleted or replaced"):
            call()
    assert account._uncommitted
    with pytest.raises(DataError, match="its log was deleted or replaced"):
        account.close()
    assert account._database._connection is None


@pytest.mark.parametrize("given", ["people.db", Account, 7])
def test_a_session_takes_an_account_only(tmp_path, given):
    for call in (
        lambda: dpb_gym.serve(
            "one-pass-pricing", "rho=1", "DPB/Pricing-v0", noise="seeded", warm=False, account=given
        ),
        lambda: dpb_gym.Session.load(tmp_path / "none.session", account=given),
    ):
        with pytest.raises(ParameterError, match=r"account must be an Account, such as Account\("):
            call()
    assert not list(tmp_path.iterdir())


OTHER = """
import sys
from dpb_gym.privacy import Account
account = Account(sys.argv[1])
print(account.charge(7, 0.3))
account.close()
"""


@pytest.mark.parametrize("reader", ["second", "holding", "again", "load"])
def test_reading_the_file_keeps_the_locks_of_this_process(tmp_path, reader):
    """A file that a process closes loses all locks of this process, also those of SQLite.

    Then another process takes itself for the last one and deletes the log, into which this
    process goes on to write.
    """
    path = tmp_path / "people"
    account = Account(path, "rho=1")
    assert account.charge(7, 0.3)
    if reader == "second":
        Account(path).close()
    elif reader == "holding":
        assert Account.holding(path, uuid.uuid4().hex) is None
    elif reader == "again":  # as before a fork
        second = Account(path)
        second._database._disconnect()
        assert second.spent(7) == 0.3
    else:
        session = dpb_gym.serve(
            "one-pass-pricing", "rho=0.1", ProblemInfo("pricing", 400, 2, (0.0, 1.0),
            demand="logistic", zeta=4.0), noise="seeded", warm=False, account=account,
        )  # fmt: skip
        session.save(tmp_path / "session")
        dpb_gym.Session.load(tmp_path / "session")
    command = [sys.executable, "-c", OTHER, str(path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"
    assert (tmp_path / "people-wal").exists()
    assert account.spent(7) == pytest.approx(0.6)
    assert account.charge(7, 0.3)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
    account.close()
    assert Account(path).spent(7) == pytest.approx(0.9)


def test_a_file_is_recognised_while_its_log_is_copied_to_it(tmp_path, monkeypatch):
    """The first page, which states the size of the file, is written before the last one."""
    account = Account(tmp_path / "people", "rho=1")
    account.charge_all([(n, 0.5) for n in range(2000)])
    account.close()
    whole = (tmp_path / "people").read_bytes()
    (tmp_path / "people").write_bytes(whole[:-PAGE])
    slept = []

    def finish(seconds):
        slept.append(seconds)
        (tmp_path / "people").write_bytes(whole)

    monkeypatch.setattr("time.sleep", finish)
    assert account._database.recognised() and slept
    (tmp_path / "people").write_bytes(whole[:-PAGE])
    monkeypatch.setattr("time.sleep", slept.append)
    assert not account._database.recognised() and len(slept) < 100
    with pytest.raises(DataError):
        Account(tmp_path / "people")
