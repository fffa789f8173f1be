"""Lifetime budgets: the filter, the odometer, several processes, and crashes."""

from __future__ import annotations

import multiprocessing
import os
import shutil

import pytest

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import Account, Composition, GaussianEvent, Guarantee, SessionCharges
from dpb_gym.privacy.account import ENTRY, HEADER

EPS = "eps=1,delta=1e-5"


def zcdp(rho, unit="user-round", notion="joint"):
    event = GaussianEvent(1.0, (2.0 * rho) ** 0.5)
    return Guarantee(notion, unit, curve=Composition.of(event))


def test_the_filter_refuses_exactly_what_exceeds_the_lifetime(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    assert account.charge(5, 0.6) and not account.charge(5, 0.41) and account.charge(5, 0.4)
    assert not account.charge(5, 1e-6) and account.charge(6, 1.0)
    assert [account.spent(user) for user in (5, 6, 10**6)] == [1.0, 1.0, 0.0]
    for user, rho in ((-1, 0.1), (2**26, 0.1), (1.5, 0.1), (0, -0.1), (0, float("nan"))):
        with pytest.raises(ParameterError, match="must be"):
            account.charge(user, rho)


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
    # the part of delta of each of 20 levels costs a fifth of epsilon at most
    assert len(set(readings)) == 20 and 1.05 < readings[-1] < 1.2
    assert account.epsilon(4) == 0.0


def test_an_account_keeps_its_lifetime_and_unit(tmp_path):
    path = tmp_path / "people"
    with pytest.raises(BudgetError, match="does not exist"):
        Account(path)
    Account(path, EPS).charge(1, 0.01)
    assert Account(path).spent(1) == Account(path, EPS).spent(1) == 0.01
    for other in ({"lifetime": "rho=1"}, {"lifetime": EPS, "unit": "user-rewards"}):
        with pytest.raises(BudgetError, match="cannot be changed"):
            Account(path, **other)
    (tmp_path / "other").write_text("not an account")
    with pytest.raises(ParameterError, match="no account"):
        Account(tmp_path / "other")


def _charge(account, wanted, admitted):
    taken = sum(account.charge(7, 1e-4) for _ in range(wanted))
    account.commit()
    admitted.put(taken)


def test_processes_that_share_an_account_do_not_overspend(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    account.charge(0, 0.1)
    fork = multiprocessing.get_context("fork")
    admitted = fork.Queue()
    workers = [fork.Process(target=_charge, args=(account, 8000, admitted)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert sum(admitted.get(timeout=60) for _ in workers) == 10_000
    for worker in workers:
        worker.join()
    assert account.spent(7) == pytest.approx(1.0) and account.spent(0) == 0.1


def test_committed_charges_survive_a_crash(tmp_path):
    path, lost = tmp_path / "people", tmp_path / "lost"
    account = Account(path, "rho=1")
    account.charge(1, 0.25)
    # after a power failure: a file without its last pages, and a log whose last entry is torn
    with open(lost, "wb") as file:
        file.write(path.read_bytes()[:HEADER])
    for user, rho in ((2, 0.5), (1, 0.25), (90_000, 0.125)):
        account.charge(user, rho)
    account.commit()
    account.charge(2, 0.1)  # not committed, so nothing was released
    shutil.copy(f"{path}-log", f"{lost}-log")
    with open(f"{lost}-log", "ab") as file:
        file.write(b"torn" + bytes(ENTRY.itemsize - 8))
    for _ in range(2):  # entries are totals: applying them again changes nothing
        found = Account(lost)
        assert [found.spent(user) for user in (1, 2, 90_000)] == [0.5, 0.5, 0.125]
        assert os.path.getsize(f"{lost}-log") == 0
    # another process may have charged since the log was written: the file has the larger total
    assert Account(path).spent(2) == 0.6
    assert found.summary()["people"] == 3 and found.summary()["largest_rho"] == 0.5


def test_a_commit_waits_for_the_disk_once(tmp_path, monkeypatch):
    account, synced = Account(tmp_path / "people", "rho=1"), []
    monkeypatch.setattr(os, "fsync", synced.append)
    account.charge(7, 0.25)
    assert not synced
    account.commit()
    account.commit()  # nothing was charged since
    account.charge(7, 0.9)  # refused
    account.commit()
    assert len(synced) == 1
    monkeypatch.setattr(os, "fsync", lambda file: 1 / 0)
    account.charge(1, 0.5)
    for _ in range(2):  # a failed commit is not forgotten
        with pytest.raises(ZeroDivisionError):
            account.commit()
    monkeypatch.undo()
    monkeypatch.setattr("dpb_gym.privacy.account.LONGEST_LOG", 0)
    account.commit()  # a long log is emptied once the file is on the disk
    assert os.path.getsize(f"{account.path}-log") == 0 and account.spent(1) == 0.5


def test_n_records_cost_as_much_as_a_group_of_n(tmp_path):
    account = Account(tmp_path / "people", "rho=1")
    rounds = SessionCharges(account, zcdp(0.1), counts := {})
    assert [rounds.admit(4) for _ in range(4)] == [True, True, True, False]
    assert account.spent(4) == pytest.approx(0.9) and counts == {4: 3}
    # a session per user pays once, whatever the number of rounds
    whole = SessionCharges(account, zcdp(0.1, "user"), {})
    assert all(whole.admit(4) for _ in range(9)) and account.spent(4) == pytest.approx(1.0)
    assert not SessionCharges(account, zcdp(0.1, "user"), {}).admit(4)
    # a session that was saved does not charge its records again
    assert SessionCharges(account, zcdp(0.1), {5: 1}).admit(5)
    assert account.spent(5) == pytest.approx(0.3)


def test_sessions_must_protect_what_the_account_protects(tmp_path):
    people = Account(tmp_path / "people", "rho=1")
    rewards = Account(tmp_path / "rewards", "rho=1", unit="user-rewards")
    for unit in ("reward", "user-rewards"):
        rewards.enter(zcdp(0.1, unit))
        with pytest.raises(BudgetError, match="does not follow"):
            people.enter(zcdp(0.1, unit))
    people.enter(zcdp(0.1, "user-round", "central"))
    assert people.summary()["notion"] == "central"
    people.enter(zcdp(0.1, "user", "anticipating"))
    people.enter(zcdp(0.1, "user", "joint"))
    assert Account(people.path).summary()["notion"] == "anticipating"
    with pytest.raises(BudgetError, match="does not follow"):
        people.enter(Guarantee.none())
