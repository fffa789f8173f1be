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
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.files import write_file
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import cost_of
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.guarantee import PUBLIC, REPORT_DELTA, Guarantee
from dpb_gym.privacy.ledger import TOLERANCE

FORMAT = "dpb-gym certificate, version 1"
GROUPS = (1, 2, 5, 10)
TEXTS, PAGE = (Path(__file__).with_name(f"certificate{end}") for end in ("_texts.json", ".html.j2"))


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
                ``provisos`` (`Guarantee.provisos`), ``lifetime`` (`Account.summary`, or None),
                ``audit`` (a report as dict, or None), ``code`` (hashes by module).
        """
        facts = [json.loads(json.dumps(entry, default=str)) for entry in entries]
        found = [{"facts": entry, "findings": findings(entry)} for entry in facts]
        versions = {name: metadata.version(name) for name in ("dpb-gym", "numpy", "scipy")}
        content = {"format": FORMAT, "versions": versions, "entries": found}
        return cls({**content, "sha256": _digest(content)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Return a saved certificate.

        Raises:
            ParameterError: If the file is no certificate.
        """
        try:
            content = json.loads(Path(path).read_bytes())
            if content["format"] != FORMAT:
                raise ValueError(content["format"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ParameterError(f"{path} is no certificate: {error}") from error
        return cls(content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page if the name ends with ``.html``, else the JSON."""
        text = json.dumps(self.content, indent=2, allow_nan=False) + "\n"
        if Path(path).suffix == ".html":
            from jinja2 import Template

            text = Template(PAGE.read_text(), autoescape=True).render(content=self.content)
        write_file(Path(path), text.encode())

    def check(self) -> list[str]:
        """Return every part of the content that does not follow from its facts."""
        rest = {name: value for name, value in self.content.items() if name != "sha256"}
        wrong = []
        if self.content.get("sha256") != _digest(rest):
            wrong.append("sha256: the content was changed after the certificate was written")
        try:
            for number, entry in enumerate(self.content["entries"]):
                stated, found = entry["findings"], findings(entry["facts"])
                for name in stated | found:
                    if stated.get(name) != found.get(name):
                        wrong.append(f"entry {number}: {name} should be {found.get(name)}")
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
    curve, texts = guarantee.curve, json.loads(TEXTS.read_bytes())
    if curve is None or budget is None:
        raise ParameterError("only a private run has a certificate")
    delta, unit = budget.delta or REPORT_DELTA, guarantee.unit
    audit, lifetime = facts["audit"], facts["lifetime"]
    cost, most = cost_of(curve, budget.delta), budget.limit * (1 + TOLERANCE)
    typed = [clause for clause in facts["provisos"] if clause.startswith("declared")]
    excluded = [*texts["excluded"], *(c for c in facts["provisos"] if c not in typed)]
    if facts["problem"].get("prior") and not guarantee.inherited:
        excluded.append("the data that the prior was computed from")
    groups = {f"epsilon of {k}": _group_epsilon(curve, k, delta) for k in GROUPS}
    person = texts["several units"]
    if lifetime is not None:
        person = texts["lifetime"].format(**lifetime, spent=_spent(lifetime))
    words = {
        **texts["notions"][guarantee.notion], **texts["generators"][facts["generator"]],
        **texts["relations"][guarantee.relation], "unit": unit, "public": PUBLIC[unit],
        "delta": delta, "epsilon": groups["epsilon of 1"], "person": person,
        "events": ", ".join(sorted({event.kind for event in curve.events})),
        "agent": facts["agent"],
        "audit": "none" if audit is None else texts["audit"].format(**audit),
    }  # fmt: skip
    problem = (f"{name} = {value}" for name, value in facts["problem"].items())
    return {
        "guarantee": guarantee.describe(delta), "groups": groups, "excluded": excluded, **words,
        "budget": {"limit": str(budget), "spent": _digits(cost), "within": cost <= most},
        "declared": [f"the cost is {guarantee.basis}", *typed, *problem],
        "NIST SP 800-226": {k: v.format(**words) for k, v in texts["NIST SP 800-226"].items()},
    }  # fmt: skip


def _group_epsilon(curve: Composition, size: int, delta: float) -> float | str:
    grouped = curve.group(size)
    found = math.inf if grouped is None else epsilon(grouped, delta)
    return _digits(found) if math.isfinite(found) else "no bound: nothing is promised"


def _spent(account: Mapping[str, Any]) -> float:
    """Return the largest epsilon that a person has spent."""
    budget, spent = Budget.parse(account["lifetime"]), ZCDPEvent(account["largest_rho"])
    delta = REPORT_DELTA if budget is None or budget.delta is None else budget.delta
    return _digits(epsilon(Composition.of(spent), delta))


def _digits(value: float) -> float:
    """Return a number without the last digits, which can differ on another machine."""
    return float(f"{value:.9g}")


def code_of(agent: type) -> dict[str, str]:
    """Return the SHA-256 of the file that defines the class, by module."""
    file = getattr(sys.modules[agent.__module__], "__file__", None)
    return {agent.__module__: hashlib.sha256(Path(file).read_bytes()).hexdigest()} if file else {}


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
