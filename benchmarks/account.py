"""Speed of accounts: charges a second, by the size of a batch, and the time to open one.

``python benchmarks/account.py --people 1000000`` measures an SQLite account of a million people,
stores the result in docs/results/account.json and writes the block of docs/account.md. Without
``--people`` the page is written from what is stored. ``--url`` also measures a PostgreSQL database,
which must be empty, and prints the result without storing it.

A batch is one `Account.charge_all` of random people: one transaction, which all processes see. With
`Account.commit` after each batch the disk is waited for too. The row of a session is
`SessionCharges.admit_all`, which also counts records, and its `commit`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from marked import replaced, table

from dpb_gym.privacy import Account, Composition, Guarantee, SessionCharges
from dpb_gym.privacy.events import ZCDPEvent

REPOSITORY = Path(__file__).parents[1]
STORED = REPOSITORY / "docs/results/account.json"
PAGE = REPOSITORY / "docs/account.md"
SIZES = (1, 8, 64, 512)
SESSION = 64  # records of a batch of a session
SECONDS = 3.0  # of each measurement


def measured(work: Callable[[list[int]], None], size: int, people: int) -> dict[str, float]:
    """Return charges a second, and the time of the processor per charge in us.

    Args:
        work: Charges a batch of people and commits.
        size: Size of a batch.
        people: Number of people.
    """
    rng = np.random.default_rng(0)
    batches = rng.integers(0, people, (200, size)).tolist()
    start = time.perf_counter()
    processor = time.process_time()
    done = 0
    while time.perf_counter() - start < SECONDS:
        work(batches[done % len(batches)])
        done += 1
    charges = done * size
    return {
        "per_second": float(f"{charges / (time.perf_counter() - start):.3g}"),
        "processor_us": float(f"{1e6 * (time.process_time() - processor) / charges:.3g}"),
    }


def measure(place: str | Path, people: int) -> dict[str, Any]:
    """Return the speed of a new account with so many people."""
    account = Account(place, "rho=1")
    for first in range(0, people, 20_000):
        account.charge_all((user, 1e-9) for user in range(first, min(first + 20_000, people)))
    account.commit()

    def charge(batch: list[int]) -> None:
        account.charge_all([(user, 1e-9) for user in batch])

    def durable(batch: list[int]) -> None:
        charge(batch)
        account.commit()

    curve = Composition.of(ZCDPEvent(1e-9))
    session = SessionCharges(account, Guarantee("joint", "user-round", curve=curve))

    def admit(batch: list[int]) -> None:
        session.admit_all(batch)

    def durably_admit(batch: list[int]) -> None:
        admit(batch)
        session.commit()

    measurements: dict[str, Any] = {"people": people, "batches": {}}
    for size in SIZES:
        measurements["batches"][str(size)] = {
            "charged": measured(charge, size, people),
            "on_disk": measured(durable, size, people),
        }
        print(size, measurements["batches"][str(size)], flush=True)
    measurements["session"] = {
        "charged": measured(admit, SESSION, people),
        "on_disk": measured(durably_admit, SESSION, people),
    }
    account.close()
    start = time.perf_counter()
    again = Account(place)
    measurements["open_seconds"] = float(f"{time.perf_counter() - start:.2g}")
    again.close()
    if account.path is not None:
        measurements["megabytes"] = round(account.path.stat().st_size / 1e6)
    return measurements


def waits(folder: Path) -> float:
    """Return the median time in ms that the disk takes for 4 KB (`os.fsync`)."""
    took = []
    file = os.open(folder / "waits", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(200):
        os.write(file, bytes(4096))
        start = time.perf_counter()
        os.fsync(file)
        took.append(time.perf_counter() - start)
    os.close(file)
    return float(f"{1e3 * np.median(took):.2g}")


def text(taken: dict[str, Any]) -> str:
    """Return the block of the page."""
    rows = [("a batch of", "charges a second", "with a commit each", "processor time per charge")]
    named = [(f"{int(size):,}", one) for size, one in taken["batches"].items()]
    named.append((f"{SESSION}, as records of a session", taken["session"]))
    rows += [
        (
            name,
            f"{one['charged']['per_second']:,.0f}",
            f"{one['on_disk']['per_second']:,.0f}",
            f"{one['charged']['processor_us']:.0f} us",
        )
        for name, one in named
    ]
    return "\n".join(
        [
            f"An SQLite account of {taken['people']:,} people has {taken['megabytes']} MB, and is "
            f"opened and checked in {taken['open_seconds']:g} s. A commit waits for the disk, "
            f"which takes {taken['disk_ms']:g} ms for 4 KB. Load of the machine: {taken['load']:g} "
            f"on {taken['processors']} processors (SQLite {taken['sqlite']}, Python "
            f"{taken['python']}).",
            "",
            table(rows),
        ]
    )


def on_page(page: str, measurements: dict[str, Any]) -> str:
    """Return the page with the block written again."""
    return replaced(page, "account", lambda _, __: text(measurements))


def main() -> None:
    """Measure what is asked for, and write the page from what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--people", type=int, help="measure an account of so many people")
    parser.add_argument("--url", help="measure this PostgreSQL database and print the result")
    options = parser.parse_args()
    if options.url:
        print(json.dumps(measure(options.url, options.people or 100_000), indent=1))
        return
    if options.people:
        with tempfile.TemporaryDirectory() as folder:
            measurements = measure(Path(folder) / "people.db", options.people)
            measurements["disk_ms"] = waits(Path(folder))
        measurements |= {
            "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
            "processors": os.cpu_count(),
            "sqlite": sqlite3.sqlite_version,
            "python": platform.python_version(),
        }
        STORED.write_text(json.dumps(measurements, indent=1) + "\n", encoding="utf-8")
    stored = json.loads(STORED.read_text("utf-8"))
    PAGE.write_text(on_page(PAGE.read_text("utf-8"), stored), encoding="utf-8")


if __name__ == "__main__":
    main()
