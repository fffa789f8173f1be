"""Generated hotel searches in the layout of Expedia's training file.

They have the form of the original (columns, missing values, position gaps, clicks and bookings),
not its statistics. So results on them are no evidence about real travellers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import validation

Array = NDArray[Any]

HEADER = (
    "srch_id,date_time,site_id,visitor_location_country_id,visitor_hist_starrating,"
    "visitor_hist_adr_usd,prop_country_id,prop_id,prop_starrating,prop_review_score,"
    "prop_brand_bool,prop_location_score1,prop_location_score2,prop_log_historical_price,"
    "position,price_usd,promotion_flag,srch_destination_id,srch_length_of_stay,"
    "srch_booking_window,srch_adults_count,srch_children_count,srch_room_count,"
    "srch_saturday_night_bool,srch_query_affinity_score,orig_destination_distance,random_bool,"
    + ",".join(f"comp{k}_rate,comp{k}_inv,comp{k}_rate_percent_diff" for k in range(1, 9))
    + ",click_bool,gross_bookings_usd,booking_bool"
)  # fmt: skip
# Hotels and share of the searches of each destination; the first has the paper's 124 hotels.
DESTINATIONS = ((8192, 124, 0.7), (20319, 40, 0.2), (8347, 30, 0.1))
# in the original almost no hotel has these positions
EMPTY_PLACES = (5, 11, 17, 23)
_START = datetime(2012, 11, 1)
_NO_COMPETITOR = ",".join(["NULL"] * 24)


def searches_csv(n_searches: int = 700, seed: int = 0) -> bytes:
    """Return generated searches as a CSV file.

    A search shows 5 to 34 hotels of its destination. The visitor books at most one, by a
    multinomial logit with positive weights of stars, reviews, location and promotions. The weight
    of the price is negative, and smaller in magnitude for visitors who paid much before. About a
    third book nothing. Booked hotels are clicked; searches without a booking have at least one
    click. Three visitors in five have no history. In the original nineteen in twenty have none,
    and the paper's rule for missing columns would drop the column.

    Args:
        n_searches: Number of searches, at least 3.
        seed: Same seed, same bytes.

    Returns:
        The file: 54 columns, ``NULL`` and empty fields for missing values, LF line ends.

    Raises:
        ParameterError: `n_searches` is too small.
    """
    validation.integer("n_searches", n_searches, 3)
    rng = np.random.default_rng([seed, 3])
    hotels = [_hotels(rng, k, count) for k, (_, count, _) in enumerate(DESTINATIONS)]
    shares = np.cumsum([share for _, _, share in DESTINATIONS])
    lines = [HEADER]
    identity = 0
    for s in range(n_searches):
        identity += int(rng.integers(1, 9))
        # the first searches cover every destination
        place = s if s < 3 else int(np.searchsorted(shares, rng.random() * shares[-1]))
        lines += _search(rng, identity, DESTINATIONS[place][0], hotels[place])
    return ("\n".join(lines) + "\n").encode("ascii")


def _hotels(rng: np.random.Generator, place: int, count: int) -> dict[str, Array]:
    star = rng.choice(np.arange(6), count, p=(0.04, 0.02, 0.21, 0.4, 0.26, 0.07))
    quality = rng.normal(0.0, 1.0, count)
    review = np.clip(np.rint(2.0 * (3.7 + 0.25 * (star - 3) + 0.5 * quality)) / 2.0, 1.0, 5.0)
    review = np.where(rng.random(count) < 0.05, 0.0, review)
    base = 4.1 + 0.28 * star + 0.1 * quality + rng.normal(0.0, 0.25, count)
    history = np.round(base + rng.normal(0.0, 0.1, count), 2)
    return {
        # separate blocks of ids: no hotel is in two destinations
        "id": 40_000 * place + np.cumsum(rng.integers(1, 300, count)),
        "star": star,
        "review": review,
        "reviewed": rng.random(count) > 0.03,
        "brand": (rng.random(count) < 0.6).astype(np.int64),
        "location": np.round(np.clip(rng.normal(2.9, 1.2, count), 0.0, 6.9), 2),
        "location2": np.round(rng.beta(1.0, 8.0, count), 4),
        "history": np.where(rng.random(count) < 0.1, 0.0, history),
        "base": base,
        "quality": quality,
        "country": np.full(count, 219 if place == 0 else 100),
    }


def _search(
    rng: np.random.Generator, identity: int, destination: int, hotels: dict[str, Array]
) -> list[str]:
    """Return the lines of one search, ascending in prop_id as in the original."""
    known = len(hotels["id"])
    shown = np.sort(rng.choice(known, int(rng.integers(5, min(34, known) + 1)), replace=False))
    n = len(shown)
    wealth = rng.normal(0.0, 1.0)
    nights = int(min(14, rng.geometric(0.5)))
    window = int(rng.exponential(35.0) * (rng.random() < 0.85))
    adults = int(rng.choice((1, 2, 3, 4), p=(0.22, 0.6, 0.1, 0.08)))
    children = int(rng.choice((0, 1, 2, 3), p=(0.74, 0.14, 0.09, 0.03)))
    rooms = 1 + int(rng.random() < 0.04 + 0.1 * (adults > 2))
    saturday = int(rng.random() < (0.35 if nights == 1 else 0.6))
    site = int(rng.choice((5, 14, 15, 24, 32), p=(0.62, 0.14, 0.1, 0.08, 0.06)))
    log_price = hotels["base"][shown] + 0.1 * saturday + rng.normal(0.0, 0.15, n)
    price = np.round(np.exp(log_price), 2)
    promotion = (rng.random(n) < 0.22).astype(np.int64)
    star = np.where(hotels["star"][shown] == 0, 3, hotels["star"][shown])
    utility = (
        -2.4
        + 0.35 * (star - 3)
        + 0.4 * hotels["quality"][shown]
        + 0.35 * (hotels["location"][shown] - 2.9)
        + 0.5 * promotion
        - (1.4 - 0.5 * wealth) * (log_price - 5.0)
    )
    noise = rng.gumbel(size=n + 1)
    winner = int(np.argmax(np.append(utility, 0.0) + noise))
    booked = np.arange(n) == winner
    tempted = utility + rng.gumbel(size=n)
    clicked = booked | (tempted > np.sort(tempted)[-1] - 0.02)
    if booked.any():
        clicked = booked | (clicked & (rng.random() < 0.1))
    places = np.setdiff1d(np.arange(1, n + 1 + len(EMPTY_PLACES)), EMPTY_PLACES)[:n]
    # better hotels tend to have higher positions
    position = np.empty(n, np.int64)
    position[np.argsort(-(utility + rng.gumbel(size=n)))] = places
    history = "NULL,NULL"
    if rng.random() < 0.4:
        stars = np.clip(3.4 + 0.5 * wealth + rng.normal(0.0, 0.4), 1.0, 5.0)
        paid = np.exp(4.95 + 0.35 * wealth + rng.normal(0.0, 0.15))
        history = f"{stars:.2f},{paid:.2f}"
    moment = _START + timedelta(seconds=int(rng.integers(0, 240 * 86_400)))
    distance = f"{rng.exponential(900.0):.2f}" if rng.random() < 0.7 else "NULL"
    country = int(rng.choice((219, 100, 55), p=(0.7, 0.2, 0.1)))
    random = int(rng.random() < 0.3)
    head = f"{identity},{moment:%Y-%m-%d %H:%M:%S},{site},{country},{history}"
    query = f"{destination},{nights},{window},{adults},{children},{rooms},{saturday}"
    lines = []
    for k, h in enumerate(shown.tolist()):
        # in the original missing reviews are empty, other missing values NULL
        review = f"{hotels['review'][h]:.6f}" if hotels["reviewed"][h] else ""
        paid_gross = f"{price[k] * nights:.2f}" if booked[k] else "NULL"
        lines.append(
            f"{head},{hotels['country'][h]},{hotels['id'][h]},{hotels['star'][h]},{review},"
            f"{hotels['brand'][h]},{hotels['location'][h]:.6f},{hotels['location2'][h]:.4f},"
            f"{hotels['history'][h]:.6f},{position[k]},{price[k]:.6f},{promotion[k]},{query},NULL,"
            f"{distance},{random},{_NO_COMPETITOR},{int(clicked[k])},{paid_gross},{int(booked[k])}"
        )
    return lines
