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

from dpb_gym.errors import ParameterError
from dpb_gym.files import text_template, write_file
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget, report_delta
from dpb_gym.privacy.calibration import cost_of
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.guarantee import PUBLIC, Guarantee
from dpb_gym.privacy.ledger import TOLERANCE

FORMAT = "dpb-gym certificate, version 1"
GROUPS = (1, 2, 5, 10)
FINDINGS, PAGE = (Path(__file__).with_name(f"certificate.{kind}.j2") for kind in ("json", "html"))


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
            text = text_template(PAGE, autoescape=True).render(content=self.content)
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
        except Exception as error:  # a forged file can raise anything
            wrong.append(f"the facts cannot be read: {error!r}")
        return wrong


def findings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from the facts of one run, as plain JSON values.

    Raises:
        DPBError: If a fact is invalid.
        KeyError: If one is missing.
    """
    from jinja2 import StrictUndefined

    guarantee, budget = Guarantee.from_dict(facts["guarantee"]), Budget.parse(facts["budget"])
    curve, account = guarantee.curve, facts["lifetime"]
    if curve is None or budget is None:
        raise ParameterError("only a private run has a certificate")
    delta, spent = report_delta(budget), cost_of(curve, budget.delta)
    rendered = text_template(FINDINGS, undefined=StrictUndefined).render(
        facts=facts, guarantee=guarantee, public=PUBLIC[guarantee.unit], delta=delta,
        budget=budget, spent=_digits(spent), within=spent <= budget.limit * (1 + TOLERANCE),
        groups={f"epsilon of {k}": _epsilon(curve.group(k), delta) for k in GROUPS},
        largest=account and _epsilon(Composition.of(ZCDPEvent(account["largest_rho"])), delta),
    )  # fmt: skip
    return dict(json.loads(rendered))


def _epsilon(curve: Composition | None, delta: float) -> float | str:
    found = math.inf if curve is None else epsilon(curve, delta)
    return _digits(found) if math.isfinite(found) else "no bound: nothing is promised"


def _digits(value: float) -> float:
    """Return a number without the last digits, which can differ on another machine."""
    return float(f"{value:.9g}")


def code_of(agent: type) -> dict[str, str]:
    """Return the SHA-256 of the file that defines the class, by module."""
    file = getattr(sys.modules[agent.__module__], "__file__", None)
    return {agent.__module__: hashlib.sha256(Path(file).read_bytes()).hexdigest()} if file else {}


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
