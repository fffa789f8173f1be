"""Certificates: every figure is recomputed, and every change is detected."""

from __future__ import annotations

import copy
import json

import pytest

import dpb_gym
from dpb_gym.audits import audit
from dpb_gym.cli import run
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Account, Budget, Certificate, Guarantee
from dpb_gym.privacy.certificate import _digest

SHOP = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    account = Account(tmp_path_factory.mktemp("account") / "people", "eps=3,delta=1e-6")
    session = dpb_gym.serve(
        "one-pass-pricing", "eps=1,delta=1e-6", SHOP, noise="seeded", seed=1, account=account
    )
    for _ in range(3):
        number, _ = session.decide([0.1, 0.2], user=3)
        session.observe(number, 1)
    report = audit("adaprivate-ucb", Budget.zcdp(0.5), runs=50, params={"batch": 8}, deployment=64)
    return session.certificate(report)


def leaves(value, path=()):
    if isinstance(value, (dict, list)) and value:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path, value


def changed(content, path):
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]]
    if isinstance(value, bool) or value is None:
        value = not value
    elif isinstance(value, (int, float)):
        value = value * 1.001 if value else 1
    else:
        value = f"{value}x"
    place[path[-1]] = value
    return content


def test_a_change_of_any_field_is_detected(certificate):
    assert certificate.check() == []
    fields = list(leaves(certificate.content))
    assert len(fields) > 100
    for path, _ in fields:
        assert Certificate(changed(certificate.content, path)).check(), path


def test_findings_cannot_be_changed_with_a_new_digest(certificate):
    findings = [path for path, _ in leaves(certificate.content) if "findings" in path]
    events = [("entries", 0, "facts", "guarantee", "curve", 0, name) for name in ("sigma", "kind")]
    facts = ("entries", 0, "facts")
    account = [
        (*facts, "lifetime", name)
        for name in certificate.content["entries"][0]["facts"]["lifetime"]
    ]
    others = [(*facts, name) for name in ("agent", "budget", "generator")]
    for path in [*findings, *events, *account, *others]:
        content = changed(certificate.content, path)
        content["sha256"] = _digest({k: v for k, v in content.items() if k != "sha256"})
        wrong = Certificate(content).check()
        assert any(line.startswith(("entry 0", "the facts")) for line in wrong), path


def test_the_findings_are_those_of_the_session(certificate):
    (entry,) = certificate.content["entries"]
    facts, found = entry["facts"], entry["findings"]
    guarantee = Guarantee.from_dict(facts["guarantee"])
    assert found["guarantee"] == guarantee.describe(1e-6)
    for k in (1, 2, 5, 10):
        grouped = Guarantee("joint", "user", curve=guarantee.curve.group(k))
        assert found["groups"][f"epsilon of {k}"] == pytest.approx(grouped.epsilon(1e-6))
    # two of three responses reached the agent, and cost as much as a group of two
    assert facts["lifetime"]["largest_rho"] == pytest.approx(4 * guarantee.rho)
    assert "none spent more than epsilon 2.27" in found["lifetime"] and found["budget"]["within"]
    assert "seed" in found["noise"] and any("zeta = 4.0" in line for line in found["declared"])
    assert found["audit"].startswith(f"{facts['audit']['verdict']} of central zCDP rho=0.5")
    assert "one-pass-pricing" in found["NIST SP 800-226"]["Algorithm"]
    with pytest.raises(AgentError, match="without a budget"):
        dpb_gym.serve("lin-ts", None, "DPB/Recommendation-v0").certificate()


def test_the_command_recomputes_a_file(certificate, tmp_path, capsys):
    path = tmp_path / "certificate.json"
    certificate.save(path)
    assert Certificate.load(path) == certificate
    assert run(["verify", str(path)]) == 0
    content = json.loads(path.read_text())
    content["entries"][0]["findings"]["groups"]["epsilon of 10"] = 1.0
    path.write_text(json.dumps(content))
    capsys.readouterr()
    assert run(["verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "entry 0: groups should be" in said and "sha256" in said
    path.write_text("{}")
    assert run(["verify", str(path)]) == 2
    certificate.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "epsilon of 10" in page and "src=" not in page and "href=" not in page


def test_a_result_directory_is_certified(tmp_path, capsys):
    results, out = tmp_path / "results", tmp_path / "certificate.json"
    agents = [("one-pass-pricing", "rho=0.5"), ("fixed-price", None)]
    dpb_gym.evaluate("DPB/Pricing-v0", agents, horizon=60, replicates=1, out=results)
    assert run(["certify", str(results), "--out", str(out)]) == 0
    assert run(["verify", str(out)]) == 0
    (entry,) = Certificate.load(out).content["entries"]
    assert entry["facts"]["agent"] == "one-pass-pricing"
    assert entry["findings"]["budget"]["spent"] == pytest.approx(0.5)
    assert "horizon = 60" in entry["findings"]["declared"]


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
    findings = session.certificate().content["entries"][0]["findings"]
    assert words in findings["NIST SP 800-226"]["Floating-point arithmetic"]
