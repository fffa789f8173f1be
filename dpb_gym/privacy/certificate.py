"""Certificates: facts about private runs, and everything that follows from them.

A certificate has entries, one per run. The facts of an entry are what the run stated: its events,
the names of the guarantee, what was typed in, the noise generator, the account and the audit. The
findings are computed from the facts: epsilons, also of groups, the lifetime, what is public, who
is trusted, what is excluded, and answers to the questions of NIST SP 800-226 (2025).
`Certificate.check` computes them again. It needs neither the data nor a network.

A SHA-256 of everything detects a change. It does not prove who wrote the file: sign the file for
that.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.files import write_file
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import cost_of, equivalent_rho
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.guarantee import PUBLIC, REPORT_DELTA, Guarantee
from dpb_gym.privacy.ledger import TOLERANCE

FORMAT, VERSION = "dpb-gym certificate", 1
GROUPS = (1, 2, 5, 10)
SEES = {
    "joint": "what is shown to everybody but the person",
    "anticipating": "what is shown after the person has left",
    "central": "everything that is shown, to the person too",
    "shuffle": "what the shuffler passes on",
    "local": "the messages that leave the person's device",
}
TRUSTED = {
    "shuffle": "the shuffler to drop the senders, and the other senders of a batch to add noise",
    "local": "nobody but the software on the person's own device",
}
CURATOR = "the curator: the process that sees contexts and responses, and its operator"
GENERATORS = {
    "system": "noise comes from the operating system's generator",
    "seeded": "noise follows from a seed: anybody with the seed can remove it",
}
EXCLUSIONS = (
    "who arrives when, and whether and when a person responds",
    "running times, logs, error messages, and files such as saved sessions",
    "choices made on data of the same people before the run, such as tuned parameters, unless an "
    "event was charged for them",
)


@dataclass(frozen=True)
class Certificate:
    """A certificate as plain JSON values; see the module's docstring.

    Attributes:
        content: The whole content.
    """

    content: Mapping[str, Any]

    @classmethod
    def of(cls, entries: Sequence[Mapping[str, Any]]) -> Certificate:
        """Return the certificate of some runs.

        Args:
            entries: Facts of each run: ``agent``, ``parameters``, ``problem``, ``budget`` (text),
                ``guarantee`` (`Guarantee.to_dict`), ``generator`` (``"system"`` or ``"seeded"``),
                ``reveals`` (`Environment.reveals`, or ""), ``provisos`` (`Guarantee.provisos`),
                ``lifetime`` (`Account.summary`, or None), ``audit`` (a report as dict, or None),
                ``code`` (hashes by module).
        """
        facts = [json.loads(json.dumps(entry, default=str)) for entry in entries]
        found = [{"facts": entry, "findings": findings(entry)} for entry in facts]
        content = {"format": FORMAT, "version": VERSION, "software": software(), "entries": found}
        return cls({**content, "sha256": _digest(content)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Return a saved certificate.

        Raises:
            ParameterError: If the file is no certificate.
        """
        try:
            content = json.loads(Path(path).read_bytes())
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError("another format or version")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ParameterError(f"{path} is no certificate: {error}") from error
        return cls(content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page if the name ends with ``.html``, else the JSON."""
        text = json.dumps(self.content, indent=2, allow_nan=False)
        page = Path(path).suffix == ".html"
        write_file(Path(path), (self.to_html() if page else text + "\n").encode())

    def to_html(self) -> str:
        """Return a page without links to other files."""
        style = (
            "body{font:16px sans-serif;max-width:60em;margin:2em auto}td{vertical-align:top;"
            "padding:.2em .8em;border-top:1px solid #ccc;overflow-wrap:anywhere}"
        )
        return (
            f"<!doctype html><meta charset=utf-8><title>Privacy certificate</title><style>{style}"
            f"</style><h1>Privacy certificate</h1>{_table(self.content)}"
        )

    def check(self) -> list[str]:
        """Return every difference between the content and what follows from its facts."""
        rest = {name: value for name, value in self.content.items() if name != "sha256"}
        wrong = []
        if self.content.get("sha256") != _digest(rest):
            wrong.append("sha256: the content was changed after the certificate was written")
        try:
            for number, entry in enumerate(self.content["entries"]):
                stated, found = entry["findings"], findings(entry["facts"])
                wrong += _differences(f"entry {number}", stated, json.loads(json.dumps(found)))
        except (DPBError, KeyError, TypeError, ValueError, AttributeError) as error:
            wrong.append(f"the facts cannot be read: {error!r}")
        return wrong


def findings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from the facts of one run, as plain JSON values.

    Raises:
        DPBError: If a fact is invalid.
        KeyError: If one is missing.
    """
    guarantee, budget = Guarantee.from_dict(facts["guarantee"]), Budget.parse(facts["budget"])
    curve = guarantee.curve
    if curve is None or budget is None:
        raise ParameterError("only a private run has a certificate")
    delta = budget.delta or REPORT_DELTA
    unit = guarantee.unit
    problem, audit, lifetime = facts["problem"], facts["audit"], facts["lifetime"]
    spent, most = cost_of(curve, budget.delta), budget.limit * (1 + TOLERANCE)
    found: dict[str, Any] = {
        "guarantee": guarantee.describe(delta),
        "the attacker sees": SEES[guarantee.notion],
        "two worlds differ in": f"one {unit} ({guarantee.relation})",
        "public": PUBLIC[unit],
        "trusted": TRUSTED.get(guarantee.notion, CURATOR),
        "noise": GENERATORS[facts["generator"]],
        "spent": {
            "budget": str(budget),
            "cost": spent,
            "within": spent <= most,
        },
        "delta": delta,
        "rho": curve.zcdp,
        "epsilon": {f"a group of {k}": _number(_group_epsilon(curve, k, delta)) for k in GROUPS},
    }
    found["declared"] = [f"{name} = {problem[name]}" for name in problem]
    if guarantee.basis != "computed":
        found["declared"].append(f"the cost: {guarantee.basis}")
    found["excluded"] = list(EXCLUSIONS)
    if facts["reveals"] and not facts["reveals"].startswith("nothing"):
        found["excluded"].append(f"what the environment reveals: {facts['reveals']}")
    found["excluded"] += facts["provisos"]
    if problem.get("prior") and not guarantee.inherited:
        found["excluded"].append("the data that the prior was computed from")
    if unit in ("reward", "user-rewards"):
        found["excluded"].append("contexts and actions, which are public in this unit")
    found["lifetime"] = None if lifetime is None else _lifetime(lifetime)
    found["audit"] = "none" if audit is None else _audit(audit)
    return {**found, "NIST SP 800-226": _answers(found, facts)}


def _group_epsilon(curve: Composition, size: int, delta: float) -> float:
    grouped = curve.group(size)
    return math.inf if grouped is None else epsilon(grouped, delta)


def _lifetime(account: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an account implies for each person over all sessions."""
    budget = Budget.parse(account["lifetime"])
    assert budget is not None
    limit, largest = equivalent_rho(budget, gaussian=False), account["largest_rho"]
    delta = budget.delta or REPORT_DELTA
    return {
        "each person": f"{budget} per {account['unit']} ({account['notion']}), all sessions "
        "together; an agent does not learn from a person whose budget is spent",
        "rho": limit,
        "within": largest <= limit * (1 + TOLERANCE),
        "people charged": account["people"],
        "largest epsilon spent": epsilon(Composition.of(ZCDPEvent(largest)), delta),
    }


def _audit(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return verdict and power of an audit."""
    control = report["control"]
    return {
        "verdict": report["verdict"],
        "claimed": report["claimed_text"],
        "shown": [
            f"{c['quantity']} >= {c['bound']} of {c['claim']}" for c in report["comparisons"]
        ],
        "power": f"with a third of the noise the same audit says {control or 'nothing'}",
        "runs in each world": report["runs"],
    }


def _answers(found: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return answers to the points of the publication, in the order of its pyramid."""
    one = found["epsilon"]["a group of 1"]
    verdict = "none" if facts["audit"] is None else f"an audit says {facts['audit']['verdict']}"
    lifetime = found["lifetime"]
    events = ", ".join(sorted({event["kind"] for event in facts["guarantee"]["curve"]}))
    return {
        "Privacy parameters": f"epsilon {one} at delta {found['delta']:g}",
        "Unit of privacy": f"{found['two worlds differ in']}; public: {found['public']}",
        "A person with several units": "see the epsilons of groups"
        if lifetime is None
        else lifetime["each person"],
        "Neighbouring data sets": "bounded: one unit is replaced"
        if facts["guarantee"]["relation"] == "replace-one"
        else "unbounded: one unit is added or removed",
        "Algorithm": f"{facts['agent']}; accounting events: {events}",
        "Correctness": f"proofs are in the package's documentation; test by attack: {verdict}",
        "Composition": "all releases of the run are charged together"
        + ("" if lifetime is None else ", and per person over all sessions by a privacy filter"),
        "Utility": "not stated here: the package's leaderboard measures regret",
        "Bias": "not examined: decisions for small groups of customers can be worse",
        "Floating-point arithmetic": "noise is discrete, on a grid"
        if facts["generator"] == "system"
        else "noise is continuous in floating point, which attacks on low bits can exploit",
        "Random numbers": found["noise"],
        "Side channels": "running times are not protected",
        "Trust model": f"trusted: {found['trusted']}",
        "Security and access control": "not part of the package: protect the process and its files",
        "Data collection exposure": "contexts and responses reach the curator in the clear"
        if facts["guarantee"]["notion"] not in TRUSTED
        else "contexts and responses are randomised before they leave the device",
    }


def software() -> dict[str, str]:
    """Return the versions that computed a certificate."""
    versions = {name: metadata.version(name) for name in ("dpb-gym", "numpy", "scipy")}
    return {"python": platform.python_version(), **versions}


def code_of(agent: type) -> dict[str, str]:
    """Return the SHA-256 of every file that defines the class or one of its bases."""
    files = {
        c.__module__: getattr(sys.modules.get(c.__module__), "__file__", None)
        for c in agent.__mro__[:-1]
    }
    return {
        name: hashlib.sha256(Path(file).read_bytes()).hexdigest()
        for name, file in sorted(files.items())
        if file and name != "abc"
    }


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "no bound: nothing is promised"


def _differences(where: str, stated: Any, found: Any) -> Iterator[str]:
    """Yield every leaf that differs; numbers may differ by rounding on another machine."""
    if isinstance(stated, dict) and isinstance(found, dict) and stated.keys() == found.keys():
        for name in stated:
            yield from _differences(f"{where}: {name}", stated[name], found[name])
    elif isinstance(stated, float) and isinstance(found, float):
        if not math.isclose(stated, found, rel_tol=1e-9):
            yield f"{where}: {stated!r} is stated, {found!r} follows from the facts"
    elif (stated, type(stated)) != (found, type(found)):
        yield f"{where}: {stated!r} is stated, {found!r} follows from the facts"


def _table(value: Any) -> str:
    if isinstance(value, Mapping):
        rows = (f"<tr><td>{escape(str(k))}<td>{_table(v)}" for k, v in value.items())
        return f"<table>{''.join(rows)}</table>"
    if isinstance(value, (list, tuple)):
        return f"<ul>{''.join(f'<li>{_table(item)}' for item in value)}</ul>"
    return escape(str(value))
