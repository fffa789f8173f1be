"""Certificates: every figure is recomputed, and every change is named."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym.audits import audit, check_audits
from dpb_gym.cli import run
from dpb_gym.errors import AgentError, MissingExtraError, ParameterError
from dpb_gym.privacy import Account, Budget, Certificate, Guarantee, certificate_schema, signature
from dpb_gym.privacy.certificate import STATED, _digest, findings
from dpb_gym.problems.rounds import ProblemInfo

SHOP = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
FACTS = ("entries", 0, "facts")
SIGNING = importlib.util.find_spec("cryptography") is not None
needs_cryptography = pytest.mark.skipif(not SIGNING, reason="the [sign] extra is missing")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    account = Account(tmp_path_factory.mktemp("account") / "people", "eps=3,delta=1e-6")
    session = dpb_gym.serve(
        "one-pass-pricing", "eps=1,delta=1e-6", SHOP, noise="seeded", seed=1, account=account
    )
    for _ in range(3):
        number, _ = session.decide([0.1, 0.2], user=3)
        session.observe(number, 1)
    report = audit("one-pass-pricing", Budget.zcdp(0.5), runs=50, deployment=64)
    return session.certificate(report)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """PEM files of a private key, its public key, and another public key."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        key = Ed25519PrivateKey.generate()
        (folder / f"{name}.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        (folder / f"{name}-public.pem").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
    return folder / "mine.pem", folder / "mine-public.pem", folder / "other-public.pem"


def leaves(value, path=()):
    if isinstance(value, (dict, list)) and value:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path, value


def objects(value, path=()):
    if isinstance(value, dict):
        yield path
    if isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from objects(part, (*path, key))


def at(content, path):
    for key in path:
        content = content[key]
    return content


def with_value(content, path, value):
    content = copy.deepcopy(content)
    at(content, path[:-1])[path[-1]] = value
    return content


def changed(content, path):
    value = at(content, path)
    if isinstance(value, bool) or value is None:
        value = not value
    elif isinstance(value, int):
        value += 1
    elif isinstance(value, float):
        value = value * 1.001 if value else 1.0
    else:
        value = f"{value}x"
    return with_value(content, path, value)


def hashed(content):
    """Return the content with the hash that a forger computes."""
    return {**content, "sha256": _digest(content)}


def forged(content, path, value):
    """Return a certificate with one false fact, and with the findings that follow from it."""
    content = with_value(content, path, value)
    for entry in content["entries"]:
        entry["findings"] = findings(entry["facts"])
    return Certificate(hashed(content))


def name_of(path):
    """Return the path of a field as `STATED` writes it."""
    names = [part for part in path if isinstance(part, str) and part != "entries"]
    return ".".join(names)


# ---------------------------------------------------------------- the honest certificate


@pytest.mark.slow
def test_the_findings_are_those_of_the_session(certificate):
    (entry,) = certificate.content["entries"]
    facts, stated = entry["facts"], entry["findings"]
    guarantee = Guarantee.from_dict(facts["guarantee"])
    assert stated["guarantee"] == guarantee.describe(1e-6)
    for k in (1, 2, 5, 10):
        grouped = Guarantee("joint", "user", curve=guarantee.curve.group(k))
        assert stated["groups"][f"epsilon of {k}"] == pytest.approx(grouped.epsilon(1e-6))
    # two of three responses reached the agent, and cost as much as a group of two
    assert facts["lifetime"]["largest_rho"] == pytest.approx(4 * guarantee.rho)
    assert "none was charged more than rho 0.112" in stated["lifetime"]
    assert stated["budget"]["within"]
    assert "seed" in stated["noise"] and any("zeta = 4.0" in line for line in stated["declared"])
    assert facts["audit"]["verdict"] in stated["audit"] and "claimed" not in stated["audit"]
    assert "one-pass-pricing" in stated["NIST SP 800-226"]["Algorithm"]
    assert any("operator of the service" in line for line in stated["excluded"])
    with pytest.raises(AgentError, match="without a budget"):
        dpb_gym.serve("lin-ts", None, "DPB/Recommendation-v0").certificate()


@pytest.mark.slow
def test_the_asked_pair_stands_beside_the_pair_of_the_page(certificate):
    stated = certificate.content["entries"][0]["findings"]
    curve = Guarantee.from_dict(certificate.content["entries"][0]["facts"]["guarantee"])
    assert stated["asked"] == {"epsilon": 1.0, "delta": 1e-6}
    assert stated["at the report delta"]["delta"] == 1e-5
    assert stated["at the report delta"]["epsilon"] == pytest.approx(curve.epsilon(1e-5))
    assert "asked for     epsilon 1 at delta 1e-06" in str(certificate)
    assert f"beside it     epsilon {curve.epsilon(1e-5):.4g} at delta 1e-05" in str(certificate)
    rho = dpb_gym.serve("one-pass-pricing", "rho=0.5", SHOP, noise="seeded", warm=False)
    assert "asked for     rho 0.5" in str(rho.certificate())


def test_the_schema_has_the_fields_of_the_library(certificate):
    """A new field must be added to the schema, or certificates of it cannot be written."""
    problem = certificate_schema.ProblemFacts.__annotations__
    assert set(problem) == {field.name for field in fields(ProblemInfo)}
    stated = certificate.content["entries"][0]["facts"]
    assert set(certificate_schema.AuditFacts.__annotations__) == set(stated["audit"])
    assert set(certificate_schema.AccountFacts.__annotations__) == set(stated["lifetime"])


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("rho=1@aggregator", "discrete"),
        ("rho=1@local", "discrete"),
        ("eps=1,delta=1e-6@local", "is continuous"),
    ],
)
def test_continuous_messages_are_stated(budget, words):
    session = dpb_gym.serve("one-pass-pricing", budget, SHOP, warm=False)
    certificate = session.certificate()
    stated = certificate.content["entries"][0]["findings"]
    assert words in stated["NIST SP 800-226"]["Floating-point arithmetic"]
    assert certificate.check() == []


# ---------------------------------------------------------------- changes of one field


def test_the_name_of_a_file_does_not_count(certificate, tmp_path, capsys):
    path = tmp_path / "spring"
    certificate.save(path)
    assert run(["verify", str(path)]) == 0
    assert "recomputed, 0 differences" in capsys.readouterr().out
    path.write_text("{}")
    assert run(["verify", str(path)]) == 2
    assert "certificate" in capsys.readouterr().err


@pytest.mark.parametrize("trust", ["local", "aggregator", "shuffler"])
def test_a_session_that_decides_itself_is_trusted(trust):
    session = dpb_gym.serve(
        "one-pass-pricing", f"rho=1@{trust}", "DPB/Pricing-v0", noise="seeded", seed=1, warm=False
    )
    before = session.certificate().content["entries"][0]["findings"]
    assert "curator" not in before["trusted"]
    session.decide([0.3, 0.8])
    after = session.certificate().content["entries"][0]["findings"]
    assert "the curator: the process that sees contexts and responses" in after["trusted"]
    assert after["trusted"] in after["NIST SP 800-226"]["Trust model"]
    assert "in the clear" in after["NIST SP 800-226"]["Data collection exposure"]


def test_a_change_of_any_field_is_detected(certificate):
    assert certificate.check() == []
    content = list(leaves(certificate.content))
    assert len(content) > 100
    for path, _ in content:
        assert Certificate(changed(certificate.content, path)).check(), path


def test_a_change_with_a_new_hash_is_named_or_documented(certificate):
    """Only the fields of `STATED` can change alone, which docs/account.md lists."""
    unnoticed = set()
    for path, _ in leaves(certificate.content):
        if path == ("sha256",):
            continue
        wrong = Certificate(hashed(changed(certificate.content, path))).check()
        if not wrong:
            unnoticed.add(name_of(path))
        assert not any(line.startswith("sha256") for line in wrong), path
    assert unnoticed
    for name in unnoticed:
        assert name.startswith(STATED), name


def test_unknown_and_repeated_fields_are_rejected_at_any_depth(certificate):
    free = {"parameters", "env_kwargs"}  # the names of their fields belong to other packages
    text = json.dumps(certificate.content)
    count = 0
    for path in objects(certificate.content):
        if path and path[-1] in free:
            continue
        content = with_value(certificate.content, (*path, "added"), 1)
        wrong = Certificate(hashed(content)).check()
        # a part of a finding is named by its finding
        named = path[3] if path[2:3] == ("findings",) and len(path) > 3 else "added"
        assert any(named in line for line in wrong), path
        inner = json.dumps(at(certificate.content, path))
        if len(inner) > 2:
            name = json.dumps(next(iter(at(certificate.content, path))))
            double = text.replace(inner, f"{{{name}: 0, {inner[1:]}", 1)
            with pytest.raises(ParameterError, match="occurs twice"):
                certificate_schema.parse(double)
            count += 1
    assert count > 10


def test_missing_fields_and_other_types_are_rejected(certificate):
    facts = at(certificate.content, FACTS)
    for path, value in leaves(facts):
        if any(isinstance(part, int) for part in path) or path[0] in ("parameters", "problem"):
            continue
        content = copy.deepcopy(certificate.content)
        del at(content, (*FACTS, *path[:-1]))[path[-1]]
        assert Certificate(hashed(content)).check(), path
        other = [value] if not isinstance(value, list) else "text"
        wrong = Certificate(hashed(with_value(certificate.content, (*FACTS, *path), other))).check()
        assert wrong and str(path[-1]) in wrong[0], path


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "true"])
def test_numbers_that_are_none_are_rejected(certificate, text, tmp_path):
    path = tmp_path / "c.json"
    rho = json.dumps(at(certificate.content, (*FACTS, "lifetime", "largest_rho")))
    path.write_text(
        json.dumps(certificate.content).replace(f'"largest_rho": {rho}', f'"largest_rho": {text}')
    )
    with pytest.raises(ParameterError, match=r"number|largest_rho"):
        Certificate.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[" * 100_000,
        '{"a":' * 100_000,
        "\ud800",
        "1" * 10_000,
        json.dumps({"format": certificate_schema.FORMAT, "entries": []}),
        json.dumps({"format": "dpb-gym certificate, version 1"}),
    ],
)
def test_other_files_are_no_certificate(text, tmp_path, capsys):
    path = tmp_path / "c.json"
    path.write_text(text, "utf-8", "surrogatepass")
    assert run(["verify", str(path)]) == 2
    assert "is no certificate" in capsys.readouterr().err
    huge = tmp_path / "huge.json"
    with open(huge, "wb") as file:
        file.truncate(2**33)
    with pytest.raises(ParameterError, match="over 16,384 KiB"):
        Certificate.load(huge)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(value=plain, data=st.data())
def test_a_random_value_anywhere_is_named_or_equal(certificate, value, data):
    paths = [path for path, _ in leaves(certificate.content) if path != ("sha256",)]
    path = data.draw(st.sampled_from(paths))
    content = with_value(certificate.content, path, value)
    wrong = Certificate(content).check()
    assert wrong or json.dumps(content) == json.dumps(certificate.content)


@settings(max_examples=50, deadline=None)
@given(value=plain)
def test_random_trees_are_no_certificate(value):
    assert Certificate(value).check()
    text = json.dumps(value)
    with pytest.raises(ParameterError):
        certificate_schema.parse(text)


# ---------------------------------------------------------------- facts that contradict each other


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("guarantee", "curve"), [{"kind": "zcdp", "rho": 50.0, "xi": 0.0}], "more than eps=1"),
        (("guarantee", "relation"), "add-remove", "cannot be charged"),
        (("guarantee", "inherited"), [{"kind": "zcdp", "rho": 0.001, "xi": 0.0}], "inherited"),
        (("guarantee", "basis"), "certified", "basis"),
        (("guarantee", "curve"), [], "curve"),
        (("guarantee", "curve"), [{"kind": "zcdp", "rho": 0.001}], "shortest form"),
        (("guarantee", "curve", 0, "count"), 10, "more than eps=1"),
        (("guarantee", "curve", 0, "sensitivity"), 1.5, "more than eps=1"),
        (("budget",), "eps=0.5,delta=1e-6", "more than eps=0.5"),
        (("budget",), "eps=1,delta=1e-6@local", "has the notion local"),
        (("budget",), "eps=1,delta=1e-6@shuffler", "has the notion shuffle"),
        (("budget",), "eps=1,delta=1e-6@aggregator", "has the notion aggregate"),
        (("budget",), "none", "only a private run"),
        (("budget",), "eps=1, delta=1e-6", "should be written"),
        (("lifetime", "largest_rho"), 1232.0, "the limit is 0.185"),
        (("lifetime", "people"), 0, "people were charged"),
        (("lifetime", "largest_rho"), 0.0, "people were charged"),
        (("lifetime", "unit"), "household", "an account has a budget per"),
        (("lifetime", "lifetime"), "none", "an account has a budget"),
        (("lifetime", "notion"), "local", "does not follow"),
        (("lifetime", "lifetime"), "rho=1@local", "names no trust model"),
        (("audit", "origin", "agent"), "one-pass-mnl", "of the agent 'one-pass-mnl'"),
        (("audit", "runs"), 5000, "its origin another number"),
    ],
)  # fmt: skip
def test_facts_that_contradict_each_other_are_named(certificate, path, value, words):
    """The forger computes findings and hash again."""
    try:
        forgery = forged(certificate.content, (*FACTS, *path), value)
    except Exception:  # the findings of impossible facts cannot be computed
        forgery = Certificate(hashed(with_value(certificate.content, (*FACTS, *path), value)))
    wrong = "\n".join(forgery.check())
    assert words in wrong
    facts = at(forgery.content, FACTS)
    with pytest.raises(ParameterError, match="cannot be certified"):
        Certificate.of([facts])


def test_consistent_false_facts_are_not_detected(certificate):
    """docs/account.md says so: facts are statements."""
    for path, value in [
        (("agent",), "no-such-agent"),
        (("generator",), "system"),
        (("guarantee", "notion"), "joint"),
        (("guarantee", "curve", 0, "sigma"), 1e3),
        (("problem", "horizon"), 7),
        (("lifetime", "people"), 1000),
    ]:
        content = with_value(certificate.content, (*FACTS, "audit"), None)
        assert forged(content, (*FACTS, *path), value).check() == []


def test_an_older_certificate_verifies():
    session = dpb_gym.serve("one-pass-pricing", "rho=0.5", SHOP, noise="seeded", warm=False)
    older = session.certificate()
    session.observe(session.decide([0.1, 0.2])[0], 1)
    assert older.check() == session.certificate().check() == []


def test_every_row_of_the_documentation_names_a_test():
    page = Path(__file__).parents[2] / "docs" / "account.md"
    table = page.read_text(encoding="utf-8").partition("\n### What verification proves\n")[2]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    for row in rows:
        assert row[3].strip().strip("`") in globals(), row
    stated = next(row[1] for row in rows if "versions" in row[1])
    assert all(f"`{name}`" in stated for name in STATED)


def test_a_certificate_has_at_least_one_entry(certificate):
    with pytest.raises(ParameterError, match="entries"):
        Certificate.of([])
    (line,) = Certificate(hashed({**certificate.content, "entries": []})).check()
    assert "entries" in line


def test_findings_of_another_entry_are_differences(certificate):
    other = dpb_gym.serve("one-pass-pricing", "rho=0.5", SHOP, noise="seeded", warm=False)
    both = [at(c.content, ("entries", 0)) for c in (certificate, other.certificate())]
    assert Certificate(hashed({**certificate.content, "entries": both})).check() == []
    swapped = [{"facts": a["facts"], "findings": b["findings"]} for a, b in (both, both[::-1])]
    wrong = Certificate(hashed({**certificate.content, "entries": swapped})).check()
    assert any(line.startswith("entry 0: budget") for line in wrong)
    assert any(line.startswith("entry 1: budget") for line in wrong)


def test_an_event_that_needs_terabytes_ends_at_once(certificate):
    event = {"kind": "poisson-gaussian", "q": 0.5, "sigma": 1.0, "sensitivity": 1.0,
             "count": 2**53, "pair": "symmetric"}  # fmt: skip
    content = with_value(certificate.content, (*FACTS, "guarantee", "curve"), [event])
    assert any("more than eps=1" in line for line in Certificate(hashed(content)).check())


def test_names_in_a_file_cannot_write_to_the_terminal(certificate):
    content = with_value(certificate.content, (*FACTS, "agent"), "\x1b[2Jrecomputed, 0 differences")
    content = with_value(content, (*FACTS, "\x1b[2J"), 1)
    content = with_value(content, ("entries", 0, "findings", "\x1b[2J"), 1)
    wrong = Certificate(hashed(content)).check()
    assert wrong and not any("\x1b" in line for line in wrong)


def test_the_order_of_keys_does_not_count(certificate):
    def turned(value):
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(part) for part in value] if isinstance(value, list) else value

    nested = with_value(certificate.content, (*FACTS, "parameters"), {"a": {"b": 1, "c": 2}})
    nested = forged(nested, (*FACTS, "problem", "prior"), {"mean": [0.5], "scale": 2.0}).content
    for each in (certificate.content, nested):
        assert list(turned(each)) != list(each)
        assert Certificate(each).check() == []
        assert Certificate(turned(each)).check() == []


# ---------------------------------------------------------------- audits


@pytest.mark.slow
def test_an_invented_audit_is_not_checked_or_refuted(certificate, tmp_path, capsys):
    honest = tmp_path / "honest.json"
    certificate.save(honest)
    assert run(["verify", str(honest)]) == 0
    assert "audit: not checked" in capsys.readouterr().out
    assert run(["verify", str(honest), "--audits"]) == 0
    assert "audit: 1 of 1 run again with the same report" in capsys.readouterr().out
    stated = dict(at(certificate.content, (*FACTS, "audit")))
    invented = {"epsilon": 0.5, "mu": 0.25, "verdict": "FAIL", "control": None}
    forgery = forged(certificate.content, (*FACTS, "audit"), {**stated, **invented})
    assert forgery.check() == []
    wrong, agreeing = check_audits(forgery)
    assert agreeing == 0 and len(wrong) == len(invented)
    for name, line in zip(sorted(invented), wrong):
        assert f"audit: {name} should be" in line
    forgery.save(tmp_path / "forged.json")
    assert run(["verify", str(tmp_path / "forged.json"), "--audits"]) == 1
    assert "audit: control should be" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("runs", 10**9, "limits"),
        ("deployment", 10**9, "limits"),
        ("env_kwargs", {"horizon": 1e12}, "limits"),
        ("env_kwargs", {"data": "/etc/passwd"}, "data of the machine"),
        ("env_kwargs", {"dim": 10**7}, "Unable to allocate"),
        ("env_id", "DPB/None-v0", "unknown"),
        ("env_id", "antigravity:DPB/Pricing-v0", "unknown"),
        ("parameters", {"no": 1}, "unexpected keyword argument"),
    ],
)
def test_an_audit_that_cannot_be_run_again_is_named(certificate, name, value, words):
    content = with_value(certificate.content, (*FACTS, "audit", "origin", name), value)
    wrong, agreeing = check_audits(Certificate(content))
    assert agreeing == 0 and words in wrong[0]
    content = with_value(certificate.content, (*FACTS, "audit", "origin"), None)
    wrong, agreeing = check_audits(Certificate(content))
    assert agreeing == 0 and "no origin" in wrong[0]


@pytest.mark.slow
def test_a_session_takes_no_audit_of_another_agent():
    report = audit("adaprivate-ucb", Budget.zcdp(0.5), runs=50, params={"batch": 8}, deployment=64)
    assert report.origin["parameters"] == {"batch": 8} and report.origin["seed"] == 0
    session = dpb_gym.serve("one-pass-pricing", "rho=0.5", SHOP, noise="seeded", warm=False)
    with pytest.raises(ParameterError, match="adaprivate-ucb"):
        session.certificate(report)


# ---------------------------------------------------------------- signatures


@needs_cryptography
def test_a_signature_names_its_key(certificate, keys, tmp_path, capsys):
    private, public, other = keys
    signed = certificate.sign(private)
    assert certificate.signer is None and signed.check() == []
    assert signed.check(public) == []
    assert any("not by" in line for line in signed.check(other))
    assert certificate.check(public) == ["signature: the certificate is not signed"]
    path = tmp_path / "signed.json"
    signed.save(path)
    assert run(["verify", str(path), "--key", str(public)]) == 0
    assert f"signed by key {signed.signer}" in capsys.readouterr().out
    assert run(["verify", str(path), "--key", str(other)]) == 1
    assert Certificate.load(path).signer == signed.signer


@pytest.mark.slow
@needs_cryptography
def test_every_change_of_a_signed_certificate_is_detected(certificate, keys):
    """Also of the fields of `STATED`, and with a new hash."""
    signed = certificate.sign(keys[0])
    for path, _ in leaves(signed.content):
        content = changed(signed.content, path)
        assert Certificate(hashed(content)).check(keys[1]) or path == ("sha256",), path
        assert Certificate(content).check(keys[1]), path


@needs_cryptography
def test_files_that_are_no_key_are_rejected(certificate, keys, tmp_path):
    private, public, _ = keys
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no key")
    for path in (wrong, public, tmp_path, tmp_path / "none.pem"):
        with pytest.raises(ParameterError, match="no private Ed25519 key"):
            certificate.sign(path)
    for path in (wrong, private):
        with pytest.raises(ParameterError, match="no public Ed25519 key"):
            certificate.check(path)


@needs_cryptography
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_confirms_signature_and_fingerprint(certificate, keys, tmp_path):
    private, public, _ = keys
    signed = certificate.sign(private)
    rest = {k: v for k, v in certificate.content.items() if k != "sha256"}
    (tmp_path / "message").write_text(json.dumps(rest, sort_keys=True))
    (tmp_path / "value").write_bytes(bytes.fromhex(signed.content["signature"]["value"]))
    verified = subprocess.run(
        ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin",
         "-in", tmp_path / "message", "-sigfile", tmp_path / "value"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert "Signature Verified Successfully" in verified.stdout, verified.stderr
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", public, "-outform", "der"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    (tmp_path / "der").write_bytes(der)
    digest = subprocess.run(
        ["openssl", "sha256", "-r", tmp_path / "der"], capture_output=True, text=True
    )
    assert digest.stdout.split()[0] == signed.signer


def test_without_the_library_a_signature_is_not_confirmed(certificate, monkeypatch):
    def missing(name, purpose, extra, hint=""):
        raise MissingExtraError(f"{purpose} needs {name}: {extra}")

    monkeypatch.setattr(signature, "optional_module", missing)
    signed = {"algorithm": "ed25519", "public_key": "00" * 32, "value": "00" * 64}
    with pytest.raises(MissingExtraError, match="sign"):
        Certificate(hashed({**certificate.content, "signature": signed})).check()
    assert certificate.check() == []


# ---------------------------------------------------------------- the commands


def test_the_command_recomputes_a_file(certificate, tmp_path, capsys):
    path = tmp_path / "certificate.json"
    certificate.save(path)
    assert Certificate.load(path) == certificate
    assert run(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert "asked for     epsilon 1 at delta 1e-06" in out
    assert "recomputed, 0 differences" in out.splitlines()[-1]
    content = json.loads(path.read_text())
    content["entries"][0]["findings"]["groups"]["epsilon of 10"] = 1.0
    path.write_text(json.dumps(content))
    assert run(["verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "entry 0: groups should be" in said and "sha256" in said
    assert "asked for" not in said
    assert run(["verify", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    certificate.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "epsilon of 10" in page and "src=" not in page and "href=" not in page
    assert run(["verify", str(tmp_path), "--audits"]) == 2
    path.write_text("[]")
    assert run(["verify", str(path)]) == 2


@needs_cryptography
def test_a_result_directory_is_certified(tmp_path, capsys, keys):
    results, out = tmp_path / "results", tmp_path / "certificate.json"
    agents = [("one-pass-pricing", "rho=0.5"), ("fixed-price", None)]
    dpb_gym.evaluate("DPB/Pricing-v0", agents, horizon=60, replicates=1, out=results)
    assert run(["certify", str(results), "--out", str(out), "--key", str(keys[0])]) == 0
    assert "signed by key" in capsys.readouterr().out
    assert run(["verify", str(out), "--key", str(keys[1])]) == 0
    (entry,) = Certificate.load(out).content["entries"]
    assert entry["facts"]["agent"] == "one-pass-pricing"
    assert entry["findings"]["budget"]["spent"] == pytest.approx(0.5)
    assert "horizon = 60" in entry["findings"]["declared"]


@pytest.mark.slow
def test_rows_beyond_their_budget_and_rows_of_others_are_left_out(tmp_path, capsys):
    results, archive = str(tmp_path / "results"), str(tmp_path / "it.zip")
    board, out = str(tmp_path / "board"), str(tmp_path / "c.json")
    sampled = {"sampling": 0.3}
    agents = {
        "kept": ("adaprivate-amp", "eps=1,delta=1e-5", sampled),
        "printed": ("adaprivate-amp", "eps=1,delta=1e-5", {**sampled, "calibration": "paper"}),
    }
    setting = {"horizon": 60, "replicates": 1}
    dpb_gym.evaluate("DPB/Recommendation-v0", agents, **setting, out=results)
    assert run(["certify", results, "--out", out]) == 0
    assert "left out: printed" in capsys.readouterr().err
    (entry,) = Certificate.load(out).content["entries"]
    assert entry["facts"]["parameters"] == sampled and run(["verify", out]) == 0

    dpb_gym.evaluate("DPB/Recommendation-v0", ["random"], **setting, out=board)
    assert run(["submit", results, "--agent", "kept", "--out", archive]) == 0
    assert run(["import", archive, "--into", board]) == 0
    capsys.readouterr()
    assert run(["certify", board, "--out", out]) == 2
    assert "was not computed here" in capsys.readouterr().err
