"""Decisions of advice, and what they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.planning.decision import Candidate, Decision, decide, difference
from dpb_gym.report.leaderboard_data import Interval

LOW, HIGH, UNCLEAR = Interval(-5, -8, -2), Interval(5, 2, 8), Interval(1, -4, 6)
NONE = Interval(0.1, -1.0, 1.2)


def one(
    over_fixed: Interval | None, over_today: Interval, budget: str = "eps=1,delta=1e-6"
) -> Candidate:
    return Candidate(budget, "one-pass-pricing", "if a curator may see all responses", over_fixed,
                     over_today)  # fmt: skip


def decision(gain: Interval | None, *candidates: Candidate, thin: str = "") -> Decision:
    return decide("pricing", candidates, "always 9 EUR", gain, 2_000, thin)


def test_an_agent_is_run_if_it_beats_the_fixed_price_and_today() -> None:
    choice = decision(HIGH, one(HIGH, HIGH))
    assert choice.kind == "agent" and choice.gain == HIGH
    assert choice.text == (
        "Run one-pass-pricing at eps=1,delta=1e-6, if a curator may see all responses. In the "
        "first 2,000 customers it earns between 2.0% and 8.0% more than today and between 2.0% and "
        "8.0% more than always 9 EUR."
    )
    several = decide("pricing", [one(HIGH, HIGH)], "always 9 EUR", HIGH, 2_000, "", several=5)
    assert several.text == (
        f"{choice.text} What one person does in up to 5 rounds together is protected less (see the "
        "notes)."
    )
    strict = one(UNCLEAR, HIGH, "eps=0.5,delta=1e-6")
    assert decision(HIGH, strict, one(HIGH, HIGH)).action.endswith("eps=1,delta=1e-6")


def test_a_fixed_price_is_charged_if_no_agent_beats_it() -> None:
    for over in (UNCLEAR, LOW):
        choice = decision(HIGH, one(over, HIGH))
        assert choice.kind == "fixed" and choice.action == "always 9 EUR"
        assert choice.text.startswith(
            "Charge 9 EUR for every customer, if demand stays as in this table. It earns between "
            "2.0% and 8.0% more than today. "
        )
    assert decide("assortment", [], "always a, b", HIGH, 10, "").text.startswith("Offer a, b ")
    assert decide("recommendation", [], "always a", HIGH, 10, "").text.startswith("Recommend a ")


def test_an_agent_that_learns_is_run_where_no_fixed_price_is_known_to_be_better() -> None:
    choice = decision(UNCLEAR, one(UNCLEAR, HIGH))
    assert choice.kind == "agent" and "than always" not in choice.text


def test_customers_are_collected_where_nothing_is_decided() -> None:
    choice = decision(UNCLEAR, one(UNCLEAR, UNCLEAR))
    assert choice.kind == "collect" and "with prices that vary more" in choice.text
    assert "always 9 EUR would earn between 4.0% less and 6.0% more than today" in choice.text
    assert choice.gain is None
    thin = decision(None, one(HIGH, HIGH), thin="This table is too thin: so it is.")
    assert thin.kind == "collect" and thin.text.endswith("This table is too thin: so it is.")
    assert decision(HIGH, one(HIGH, HIGH), thin="too thin").kind == "fixed"


def test_nothing_changes_where_no_gain_is_possible() -> None:
    assert decision(NONE, one(LOW, LOW)).kind == "keep"
    assert decision(None, one(None, UNCLEAR)).kind == "collect"


def test_differences_in_words() -> None:
    assert difference(Interval(-3.0, -9.2, 1.5)) == "between 9.2% less and 1.5% more"
    assert difference(HIGH) == "between 2.0% and 8.0% more"
    assert difference(LOW) == "between 2.0% and 8.0% less"
    assert difference(Interval(-0.071, -0.072, -0.07)) == "about 0.07% less"


@given(st.floats(-50, 50), st.floats(0, 20), st.floats(-50, 50), st.floats(0, 20),
       st.floats(-50, 50), st.floats(0, 20))  # fmt: skip
def test_nothing_changes_without_a_shown_gain(
    a: float, wa: float, b: float, wb: float, c: float, wc: float
) -> None:
    """Whatever the intervals: a change has an interval above 0, and its text has that interval."""
    gain, over, today = (Interval(m, m - w, m + w) for m, w in ((a, wa), (b, wb), (c, wc)))
    choice = decision(gain, one(over, today))
    if choice.kind in ("agent", "fixed"):
        assert choice.gain is not None and choice.gain.low > 0.0
        assert difference(choice.gain) in choice.text
        assert choice.gain is (gain if choice.kind == "fixed" else today)
    else:
        assert choice.gain is None
    if gain.low > 0.0:
        assert choice.kind in ("agent", "fixed")
