"""Certificates: facts about private runs, and everything that follows from them.

A certificate has entries, one per run. The facts of an entry are what the run stated: its events,
the names of the guarantee, what was typed in, the noise generator, the account and the audit. The
findings are computed from the facts: epsilons, also of groups, the lifetime, what is public, who
is trusted, what is excluded, and answers to the questions of NIST SP 800-226 (2025).
`Certificate.check` computes them again. It needs neither the data nor a network.

A SHA-256 of everything detects a change. It does not prove who wrote the file; a signature does.
docs/account.md lists what a check proves and what it cannot.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.files import read_regular, text_template, write_file
from dpb_gym.privacy import certificate_schema, signature
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import REPORT_DELTA, Budget, report_delta
from dpb_gym.privacy.calibration import cost_of, equivalent_rho
from dpb_gym.privacy.certificate_schema import FORMAT
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import Event
from dpb_gym.privacy.guarantee import NOTIONS, ON_SERVER, PUBLIC, Guarantee, implies
from dpb_gym.privacy.ledger import TOLERANCE
from dpb_gym.privacy.releasers.trust_models import trust_model

GROUPS = (1, 2, 5, 10)
STATED = ("versions", "facts.code", "facts.audit.origin")
"""Fields from which nothing follows, so that only the SHA-256 or a signature covers them."""
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
                ``audit`` (`AuditReport.summary`, or None), ``code`` (``entry_point``, ``digest``
                and ``revision``).

        Raises:
            ParameterError: If there is no entry, a fact is missing or of another type, or facts
                contradict each other, such as more privacy loss than the budget.
        """
        content: dict[str, Any] = {"format": FORMAT, "versions": versions(), "entries": []}
        for number, entry in enumerate(entries):
            # as a reader of the file gets them, so that what is checked is what is written
            facts = json.loads(json.dumps(entry, default=str))
            try:
                facts = certificate_schema.validated(certificate_schema.FACTS, facts)
                wrong = contradictions(facts)
            except DPBError as error:
                wrong = [str(error)]
            if wrong:
                raise ParameterError(f"entry {number} cannot be certified: {'; '.join(wrong)}")
            content["entries"].append({"facts": facts, "findings": findings(facts)})
        # over everything above; a signature covers the same bytes
        content["sha256"] = _digest(content)
        certificate_schema.validated(certificate_schema.SCHEMA, content)
        return cls(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Return a saved certificate; `check` tells whether its content holds together.

        Raises:
            ParameterError: If the file is no certificate: not JSON, a key twice in an object, an
                unknown or missing field, a value of another type, a number that is not finite, or
                more than 16 MiB. The message names the field.
        """
        try:
            content = read_regular(Path(path), certificate_schema.MOST_BYTES)
            return cls(certificate_schema.parse(content))
        except (OSError, ParameterError) as error:
            raise ParameterError(f"{path} is no certificate: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page if the name ends with ``.html``, else the JSON.

        Only the JSON can be checked.
        """
        text = json.dumps(self.content, indent=2, allow_nan=False) + "\n"
        if Path(path).suffix == ".html":
            text = text_template(PAGE, autoescape=True).render(content=self.content)
        write_file(Path(path), text.encode())

    def sign(self, key: str | os.PathLike[str]) -> Certificate:
        """Return the certificate with an Ed25519 signature; an earlier one is replaced.

        Args:
            key: PEM file of the private key, without a password.

        Raises:
            ParameterError: If the file is no such key.
            MissingExtraError: If ``cryptography`` is not installed (extra ``[sign]``).
        """
        signed = signature.sign(_message(self.content), key)
        return replace(self, content={**self.content, "signature": signed})

    @property
    def signer(self) -> str | None:
        """Fingerprint of the key that `content` names; `check` tells whether it signed.

        It is the SHA-256 of the key's DER form. None without a signature.
        """
        signed = self.content.get("signature")
        return None if signed is None else signature.fingerprint(signed["public_key"])

    def check(self, key: str | os.PathLike[str] | None = None) -> list[str]:
        """Return everything in the content that is invalid or does not follow from its facts.

        Args:
            key: PEM file of the public key that must have signed the certificate; None if any key,
                or no signature, will do.

        Raises:
            ParameterError: If the file `key` is no public Ed25519 key.
            MissingExtraError: If there is a key or a signature, and ``cryptography`` is not
                installed (extra ``[sign]``).
        """
        try:
            # content can have been made in Python, past the checks of `load`
            content = certificate_schema.parse(json.dumps(self.content, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            return [f"the content is no certificate: {error}"]
        wrong = []
        if content["sha256"] != _digest(content):
            wrong.append("sha256: the content was changed after the certificate was written")
        wrong += _wrong_signature(content, key)
        for number, entry in enumerate(content["entries"]):
            try:
                differences = _differences(entry)
            except Exception as error:  # a forged file can raise anything
                differences = [f"the facts cannot be read: {error!r:.300}"]
            wrong += [f"entry {number}: {line}" for line in differences]
        return wrong

    def __str__(self) -> str:
        """Return one paragraph per entry: what was asked for, what was spent, who signed."""
        lines = []
        for entry in self.content["entries"]:
            facts = entry["facts"]
            stated = entry["findings"]
            budget = stated["budget"]
            unit = "rho" if "rho" in stated["asked"] else "epsilon"
            spent = f"{unit} {budget['spent']:.4g} of {budget['limit']}"
            lines += [
                f"{facts['agent']}: {stated['guarantee']}",
                f"  asked for     {_pair(stated['asked'])}; spent: {spent}",
                f"  beside it     {_pair(stated['at the report delta'])}",
                f"  lifetime      {stated['lifetime']}",
                f"  audit         {stated['audit']}",
            ]
        lines.append("not signed" if self.signer is None else f"signed by key {self.signer}")
        return "\n".join(lines)


def _pair(values: Mapping[str, Any]) -> str:
    """Return the text of rho, or of epsilon and delta."""
    if "rho" in values:
        return f"rho {values['rho']:g}"
    loss = values["epsilon"]
    loss = loss if isinstance(loss, str) else f"{loss:.4g}"
    return f"epsilon {loss} at delta {values['delta']:g}"


def _differences(entry: Mapping[str, Any]) -> list[str]:
    """Return the contradictions among the facts, and the findings that do not follow from them."""
    stated = entry["findings"]
    derived = findings(entry["facts"])
    differences = contradictions(entry["facts"])
    for name in derived:
        # as text, because True equals 1 in Python
        if json.dumps(stated.get(name), sort_keys=True) != json.dumps(
            derived[name], sort_keys=True
        ):
            differences.append(f"{name} should be {json.dumps(derived[name])}")
    for name in stated.keys() - derived.keys():
        differences.append(f"{json.dumps(name)[:100]}: unknown finding")
    return differences


def _wrong_signature(content: Mapping[str, Any], key: str | os.PathLike[str] | None) -> list[str]:
    """Return why a signature is missing, of another key, or wrong."""
    signed = content.get("signature")
    wanted = None if key is None else signature.public_key(key)
    if signed is None:
        return [] if wanted is None else ["signature: the certificate is not signed"]
    if not signature.is_valid(_message(content), signed):
        return ["signature: it does not belong to the content and the key that it names"]
    if wanted not in (None, signed["public_key"]):
        return [
            f"signature: signed by key {signature.fingerprint(signed['public_key'])}, not by "
            f"{signature.fingerprint(str(wanted))}"
        ]
    return []


def contradictions(facts: Mapping[str, Any]) -> list[str]:
    """Return every contradiction among the facts of one run.

    Raises:
        DPBError: If a fact is invalid.
    """
    guarantee, curve, budget = _private(facts)
    # recomputed by the accountant: what the file says of it is not read
    spent = cost_of(curve, budget.delta)
    wrong = []
    if guarantee.to_dict() != facts["guarantee"]:
        wrong.append("guarantee: it is not in its shortest form")
    if str(budget) != facts["budget"]:
        wrong.append(f"budget: it should be written {str(budget)!r}")
    if not spent <= budget.limit * (1 + TOLERANCE):
        wrong.append(f"budget: {_digits(spent)} was spent, more than {budget} allows")
    # with a trusted curator the notion is the agent's to state
    notion = trust_model(budget.trust).notion or guarantee.notion
    if notion != guarantee.notion:
        wrong.append(f"guarantee: {budget} has the notion {notion}, not {guarantee.notion}")
    inherited = Composition() if guarantee.inherited is None else guarantee.inherited
    if not _includes(curve, inherited):
        wrong.append("guarantee: the inherited events are not among those of the curve")
    audit = facts["audit"]
    if audit is not None and audit["origin"] is not None:
        if audit["origin"]["agent"] != facts["agent"]:
            wrong.append(f"audit: it is of the agent {audit['origin']['agent']!r}")
        if audit["origin"]["runs"] != audit["runs"]:
            wrong.append(f"audit: it has {audit['runs']} runs, its origin another number")
    return wrong + _account_contradictions(facts["lifetime"], guarantee)


def _account_contradictions(account: Mapping[str, Any] | None, guarantee: Guarantee) -> list[str]:
    """Return every contradiction between an account and the guarantee of a session."""
    if account is None:
        return []
    wrong = []
    lifetime = Budget.parse(account["lifetime"])
    largest = account["largest_rho"]
    if lifetime is None or account["unit"] not in ACCOUNT_UNITS:
        return [f"lifetime: an account has a budget per {' or '.join(ACCOUNT_UNITS)}"]
    if lifetime.trust != "curator":
        wrong.append("lifetime: that of an account names no trust model")
    if str(lifetime) != account["lifetime"]:
        wrong.append(f"lifetime: it should be written {str(lifetime)!r}")
    limit = _limit(account["lifetime"])
    if largest > limit * (1 + TOLERANCE):
        wrong.append(f"lifetime: a person has spent rho {largest:g}, the limit is {limit:.6g}")
    if (largest > 0.0) != (account["people"] > 0):
        wrong.append(f"lifetime: {account['people']} people were charged at most rho {largest:g}")
    unit = ACCOUNT_UNITS[account["unit"]]
    if guarantee.rho is None or not guarantee.covers(NOTIONS[-1], unit, "replace-one"):
        wrong.append(f"lifetime: a guarantee per {guarantee.unit} cannot be charged to it")
    if not implies(guarantee.notion, account["notion"], account["unit"]):
        wrong.append(f"lifetime: {account['notion']} does not follow from {guarantee.notion}")
    return wrong


ACCOUNT_UNITS = {"user": "user-round", "user-rewards": "reward"}
"""Units of accounts, each with the unit that its sessions must protect at least."""


def _includes(whole: Composition, part: Composition) -> bool:
    """Return whether all events of one composition are among those of another."""
    counts: dict[Event, int] = {}
    for composition, sign in ((whole, 1), (part, -1)):
        for event in composition.events:
            counted = hasattr(event, "count")
            key = replace(event, count=1) if counted else event  # type: ignore[call-arg]
            counts[key] = counts.get(key, 0) + sign * getattr(event, "count", 1)
    return min(counts.values(), default=0) >= 0


def _private(facts: Mapping[str, Any]) -> tuple[Guarantee, Composition, Budget]:
    """Return guarantee, its curve, and the budget of one run."""
    guarantee = Guarantee.from_dict(facts["guarantee"])
    budget = Budget.parse(facts["budget"])
    if guarantee.curve is None or budget is None:
        raise ParameterError("only a private run has a certificate")
    return guarantee, guarantee.curve, budget


def findings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from the facts of one run, as plain JSON values.

    Raises:
        DPBError: If a fact is invalid.
        KeyError: If one is missing.
    """
    from jinja2 import StrictUndefined

    # the order of keys in a file has no meaning, and texts contain whole objects
    facts = json.loads(json.dumps(facts, sort_keys=True))
    guarantee, curve, budget = _private(facts)
    account = facts["lifetime"]
    delta = report_delta(budget)
    spent = cost_of(curve, budget.delta)
    asked: dict[str, Any] = {"rho": budget.rho}
    if budget.rho is None:
        asked = {"epsilon": budget.epsilon, "delta": budget.delta}
    reported = {"epsilon": _epsilon(curve, REPORT_DELTA), "delta": REPORT_DELTA}
    rendered = text_template(FINDINGS, undefined=StrictUndefined).render(
        facts=facts, guarantee=guarantee, public=PUBLIC[guarantee.unit], delta=delta,
        budget=budget, spent=_digits(spent), within=spent <= budget.limit * (1 + TOLERANCE),
        asked=asked, reported=reported,
        groups={f"epsilon of {k}": _epsilon(curve.group(k), delta) for k in GROUPS},
        limit=account and _digits(_limit(account["lifetime"])),
        largest=account and _digits(account["largest_rho"]),
        on_devices=ON_SERVER not in facts["provisos"],
    )  # fmt: skip
    return dict(json.loads(rendered))


def _limit(lifetime: str) -> float:
    """Return the largest rho of a person, as `Account.limit`."""
    budget = Budget.parse(lifetime)
    if budget is None:
        raise ParameterError("lifetime: an account has a budget")
    return equivalent_rho(budget, gaussian=False)


def _epsilon(curve: Composition | None, delta: float) -> float | str:
    bound = math.inf if curve is None else epsilon(curve, delta)
    return _digits(bound) if math.isfinite(bound) else "no bound: nothing is promised"


def _digits(value: float) -> float:
    """Return a number without the last digits, which can differ on another machine."""
    return float(f"{value:.9g}")


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the numbers of a run."""
    names = ("dpb-gym", "numpy", "scipy")
    return {name.replace("-", "_"): metadata.version(name) for name in names}


def code_of(agent: type) -> dict[str, str | None]:
    """Return the name of a class and the SHA-256 of the file that defines it."""
    file = getattr(sys.modules[agent.__module__], "__file__", None)
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    entry_point = f"{agent.__module__}:{agent.__qualname__}"
    return {"entry_point": entry_point, "digest": digest, "revision": None}


def _message(content: Mapping[str, Any]) -> bytes:
    """Return the bytes that are hashed and signed: all fields but hash and signature."""
    # sorted keys: the order in a file has no meaning
    names = content.keys() - {"sha256", "signature"}
    return json.dumps({name: content[name] for name in names}, sort_keys=True).encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_message(content)).hexdigest()
