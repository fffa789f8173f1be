"""Messy files in the shapes of public data of the field, generated with demand that is known."""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Generator = Callable[[Path], Path]


def sigmoid(u: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-u))


def write(
    path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]], mark: str = ",",
    encoding: str = "utf-8", above: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write a table of text with lines above it, and return its path."""
    lines = [*above, mark.join(head)] if head else [*above]
    lines += [mark.join(map(str, row)) for row in rows]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


def with_comma(value: float) -> str:
    return f"{value:.2f}".replace(".", ",")


def weekly_prices(folder: Path) -> Path:
    """Write weekly prices and units of a store, as of avocados: nobody who did not buy."""
    rng = np.random.default_rng(1)
    rows = []
    for week in range(400):
        price = round(rng.uniform(0.8, 2.2), 2)
        day = np.datetime64("2015-01-04") + 7 * week
        kind = rng.choice(["conventional", "organic"])
        rows.append([week, day, price, rng.poisson(40 / price**2), kind, str(day)[:4]])
    return write(
        folder / "avocado.csv", ["", "Date", "AveragePrice", "Units Sold", "type", "year"], rows
    )


def scanner_panel(folder: Path) -> Path:
    """Write a scanner panel with a column per brand and attribute, and households."""
    rng = np.random.default_rng(2)
    brands, level = ["yoplait", "dannon", "hiland"], np.array([1.5, 1.0, -1.0])
    rows = []
    for household in range(1, 81):
        taste = rng.normal(0, 0.5, 3)
        for _ in range(15):
            price, ad = np.round(rng.uniform(5, 12, 3), 1), (rng.random(3) < 0.1).astype(int)
            utility = level + taste - 0.35 * price + 0.5 * ad + rng.gumbel(size=3)
            rows.append([household, *ad, *price, brands[int(utility.argmax())]])
    names = [*(f"feat.{b}" for b in brands), *(f"price.{b}" for b in brands)]
    return write(folder / "yogurt.csv", ["id", *names, "choice"], rows)


def travel_long(folder: Path) -> Path:
    """Write choices of a travel mode with a row per alternative."""
    rng = np.random.default_rng(3)
    rows = []
    for person in range(1, 301):
        cost = np.round(rng.uniform([40, 20, 15, 5], [110, 60, 50, 30]))
        hours = np.round(rng.uniform([60, 200, 250, 180], [200, 800, 850, 700]))
        utility = np.array([2.5, 1.5, 1.0, 1.0]) - 0.03 * cost - 0.004 * hours
        taken = (utility + rng.gumbel(size=4)).argmax()
        income = int(rng.integers(2, 72))
        for k, mode in enumerate(["air", "train", "bus", "car"]):
            rows.append([person, mode, "yes" if k == taken else "no", cost[k], hours[k], income])
    return write(folder / "TravelMode.csv",
                 ["individual", "mode", "choice", "vcost", "travel", "income"], rows)  # fmt: skip


def travel_wide(folder: Path) -> Path:
    """Write a stated choice with codes 1 to 3, of which 0 is unknown, and availability."""
    rng = np.random.default_rng(4)
    rows = []
    for k in range(900):
        minutes, cost = rng.integers(60, 240, 3), rng.integers(20, 150, 3)
        there = np.array([1, 1, int(rng.random() < 0.8)])
        utility = np.array([0, 0.3, 0.2]) - 0.01 * minutes - 0.015 * cost + rng.gumbel(size=3)
        taken = int(np.where(there == 1, utility, -99).argmax()) + 1 if rng.random() > 0.02 else 0
        pairs = np.column_stack([minutes, cost, there]).ravel()
        rows.append([k // 9, *pairs, taken])
    names = [f"{a}_{b}" for a in ("TRAIN", "SM", "CAR") for b in ("TT", "CO", "AV")]
    return write(folder / "sp.csv", ["ID", *names, "CHOICE"], rows)


def fishing(folder: Path) -> Path:
    """Write wide choices whose column of choices is called as an item."""
    rng = np.random.default_rng(5)
    modes, level = ["beach", "pier", "boat", "charter"], np.array([0, 0.3, 0.8, 1.2])
    rows = []
    for _ in range(600):
        price = np.round(rng.gamma(2, 30, 4), 3)
        catch = np.round(rng.uniform(0.05, 1, 4), 4)
        utility = level - 0.025 * price + 0.6 * catch + rng.gumbel(size=4)
        rows.append([modes[int(utility.argmax())], *price, *catch])
    names = [f"{a}.{m}" for a in ("price", "catch") for m in modes]
    return write(folder / "Fishing.csv", ["mode", *names], rows)


def hotel(folder: Path) -> Path:
    """Write bookings of hotels, whose 0 and 1 are cancellations."""
    rng = np.random.default_rng(6)
    rows = []
    for k in range(800):
        rate, lead = round(rng.uniform(40, 220), 2), int(rng.exponential(80))
        gone = int(rng.random() < sigmoid(-2 + 0.008 * rate + 0.004 * lead))
        agent = int(rng.integers(1, 400)) if rng.random() < 0.7 else "NULL"
        rows.append([gone, lead, 2016, "July", 1 + k % 28, agent, rate])
    names = ["is_canceled", "lead_time", "arrival_year", "arrival_month", "arrival_day", "agent"]
    return write(folder / "hotel_bookings.csv", [*names, "adr"], rows)


def quotes_german(folder: Path) -> Path:
    """Write German quotes: semicolons, cp1252, decimal commas, a currency, ja and nein."""
    rng = np.random.default_rng(7)
    rows = []
    for k in range(900):
        price, age = rng.uniform(20, 90), int(rng.integers(18, 80))
        sold = rng.random() < sigmoid(2.4 - 0.05 * price + 0.01 * (age - 50))
        day = f"{1 + k % 28:02d}.{1 + k // 75:02d}.2023"
        rows.append([day, f"{with_comma(price)} €", age, "ja" if sold else "nein"])
    names = ["Datum", "Angebotspreis (€)", "Alter", "Gebucht?"]
    return write(folder / "angebote.csv", names, rows, ";", "cp1252")


def quotes_french(folder: Path) -> Path:
    """Write French sales, packed: accents in names, decimal commas, oui and non."""
    rng = np.random.default_rng(8)
    rows = []
    for k in range(900):
        price = rng.uniform(5, 30)
        sold = rng.random() < sigmoid(2.0 - 0.13 * price)
        rows.append([k + 1, with_comma(price), rng.choice(["Paris", "Lyon"]),
                     "oui" if sold else "non"])  # fmt: skip
    plain = write(folder / "v.csv", ["N°", "Prix proposé", "Ville", "Acheté"], rows, ";", "cp1252")
    packed = folder / "ventes.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    return packed


def logged_clicks(folder: Path) -> Path:
    """Write clicks on items that were shown with equal probabilities."""
    rng = np.random.default_rng(9)
    rows = []
    for k in range(4_000):
        item = int(rng.integers(0, 12))
        when = f"2019-11-24 00:{k // 60 % 60:02d}:{k % 60:02d}.1+00:00"
        rows.append([k, when, item, int(rng.random() < 0.05 + 0.02 * item), 1 / 12])
    names = ["", "timestamp", "item_id", "click", "propensity_score"]
    return write(folder / "random_all.csv", names, rows)


def logged_percent(folder: Path) -> Path:
    """Write clicks with probabilities in percent, and truth values in capitals."""
    rng = np.random.default_rng(10)
    shares, rates = np.array([0.4, 0.3, 0.2, 0.1]), [0.1, 0.12, 0.2, 0.08]
    rows = []
    for k in range(3_000):
        shown = rng.choice(4, p=shares)
        hit = "TRUE" if rng.random() < rates[shown] else "FALSE"
        banner = ["red", "blue", "green", "gold"][shown]
        rows.append([f"2024-05-{1 + k % 28:02d}", banner, f"{100 * shares[shown]:.0f}%", hit])
    return write(folder / "banner.csv", ["day", "Banner", "Prob", "Clicked"], rows)


def ratings_colons(folder: Path) -> Path:
    """Write ratings without a header, whose columns are separated by two colons."""
    rng = np.random.default_rng(11)
    quality = rng.normal(3.3, 0.6, 60)
    rows = [
        [user, film + 1, int(np.clip(round(quality[film] + rng.normal(0, 0.9)), 1, 5)), 978300760]
        for user in range(1, 201)
        for film in rng.choice(60, 15, replace=False)
    ]
    return write(folder / "scores.dat", [], rows, "::")


def conjoint_wide(folder: Path) -> Path:
    """Write a survey: digits without a separator, answers to questions, -1 for no answer."""
    rng = np.random.default_rng(12)
    rows = []
    for person in range(150):
        for task in range(6):
            price, extra = rng.choice([99, 149, 199, 249], 3), rng.choice([0, 1], 3)
            utility = 1.0 - 0.012 * price + 0.8 * extra + rng.gumbel(size=3)
            taken = 0 if rng.gumbel() - 1 > utility.max() else int(utility.argmax()) + 1
            taken = -1 if rng.random() < 0.03 else taken
            mood = rng.integers(1, 6, 2)
            rows.append([f"R{person:03d}", task + 1, *price, *extra, *mood, taken])
    names = [*(f"price{k}" for k in (1, 2, 3)), *(f"gps{k}" for k in (1, 2, 3)), "Mood1", "Mood2"]
    return write(folder / "conjoint.csv", ["respondent", "task", *names, "answer"], rows)


def conjoint_long(folder: Path) -> Path:
    """Write a conjoint study whose task numbers begin again with each person."""
    rng = np.random.default_rng(13)
    rows = []
    for person in range(120):
        for task in range(8):
            price, seats = rng.choice([23, 30, 35, 40], 3), rng.choice([6, 7, 8], 3)
            taken = (-0.12 * price + 0.4 * seats + rng.gumbel(size=3)).argmax()
            rows += [[person + 1, task + 1, k + 1, seats[k], price[k], int(k == taken)]
                     for k in range(3)]  # fmt: skip
    return write(
        folder / "minivan.csv", ["resp.id", "ques", "alt", "seat", "price", "choice"], rows
    )


def json_lines(folder: Path) -> Path:
    """Write events as JSON lines with times and truth values."""
    rng = np.random.default_rng(14)
    lines = []
    for k in range(700):
        price = round(rng.uniform(3, 12), 2)
        lines.append(json.dumps({
            "ts": f"2024-03-{1 + k % 28:02d}T10:00:00Z", "price": price,
            "segment": str(rng.choice(["new", "old"])),
            "purchased": bool(rng.random() < sigmoid(2.5 - 0.4 * price)),
        }))  # fmt: skip
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def headerless(folder: Path) -> Path:
    """Write quotes without names of columns."""
    rng = np.random.default_rng(15)
    rows = []
    for _ in range(600):
        price = round(rng.uniform(3, 12), 2)
        rows.append([price, int(rng.integers(18, 80)),
                     int(rng.random() < sigmoid(2.5 - 0.4 * price))])  # fmt: skip
    return write(folder / "nohead.csv", [], rows)


def offers(folder: Path) -> Path:
    """Write offers with dollars, separators of thousands, numbers of customers, Y and N."""
    rng = np.random.default_rng(16)
    rows = []
    for k in range(1_200):
        price, income = rng.uniform(900, 3_500), rng.uniform(20_000, 150_000)
        sold = rng.random() < sigmoid(3.0 - 0.0014 * price)
        rows.append([f"C-{10_000 + k}", f'"${price:,.2f}"', f'"{income:,.0f}"',
                     rng.choice(["A", "B", "C"]), "Y" if sold else "N"])  # fmt: skip
    names = ["Customer No.", "Offer Price", "Annual income", "Segment", "Accepted"]
    return write(folder / "offers.csv", names, rows)


def auction(folder: Path) -> Path:
    """Write auctions: reserve prices, and the highest bids where something was sold."""
    rng = np.random.default_rng(17)
    rows = []
    for k in range(2_000):
        reserve, bid = round(rng.uniform(0.5, 5), 2), rng.lognormal(0.6, 0.5)
        sold = bid > reserve
        rows.append([k + 1, reserve, round(bid, 2) if sold else "", int(sold)])
    return write(folder / "auction.csv", ["auction_id", "reserve", "clearing_price", "sold"], rows)


def itineraries(folder: Path) -> Path:
    """Write airline itineraries: tabs, comments, sets by a search, -999 for missing."""
    rng = np.random.default_rng(18)
    rows = []
    for search in range(400):
        count = int(rng.integers(3, 6))
        fare, stops = np.round(rng.uniform(80, 400, count)), rng.integers(0, 3, count)
        minutes = np.round(rng.uniform(90, 400, count))
        utility = 2.5 - 0.012 * fare - 0.7 * stops - 0.003 * minutes + rng.gumbel(size=count)
        taken = utility.argmax() if utility.max() > rng.gumbel() else -1
        for k in range(count):
            long = int(minutes[k]) if rng.random() > 0.02 else -999
            carrier = ["AA", "DL", "UA", "WN", "B6"][k]
            rows.append([f"S{search}", carrier, int(fare[k]), stops[k], long, int(k == taken)])
    names = ["search_id", "carrier", "fare_usd", "stops", "elapsed", "booked"]
    above = ["# itineraries, exported 2024-02-01", "# missing: -999"]
    return write(folder / "itineraries.txt", names, rows, "\t", above=above)


def workbook(folder: Path) -> Path:
    """Write an Excel sheet with a title above the header, dates, visitors and units."""
    import openpyxl

    rng = np.random.default_rng(19)
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["Umsatzbericht Filiale Nord"], [], ["Tag", "Preis", "Besucher", "Verkauft"]):
        sheet.append(row)
    for k in range(150):
        price, seen = float(rng.choice([2.0, 2.5, 3.0, 3.5, 4.0])), int(rng.poisson(60)) + 1
        day = datetime.date(2024, 1, 1) + datetime.timedelta(k)
        sheet.append([day, price, seen, int(rng.binomial(seen, sigmoid(2 - price)))])
    path = folder / "Filiale.xlsx"
    book.save(path)
    return path


def survey_codes(folder: Path) -> Path:
    """Write a survey with -999 and 99 for missing answers."""
    rng = np.random.default_rng(20)
    rows = []
    for _ in range(1_000):
        price = round(rng.uniform(10, 50), 2)
        age = int(rng.integers(18, 90)) if rng.random() > 0.05 else -999
        income = int(rng.integers(1, 9)) if rng.random() > 0.04 else 99
        rows.append([price, age, income, int(rng.random() < sigmoid(2.0 - 0.08 * price))])
    return write(folder / "survey.csv", ["price", "age", "income_class", "bought"], rows)


def renewals(folder: Path) -> Path:
    """Write renewals of insurance: a premium, another 0 and 1, and the answer as two words."""
    rng = np.random.default_rng(21)
    rows = []
    for k in range(1_500):
        price = rng.gamma(6, 80)
        stays = rng.random() < sigmoid(2.0 - 0.004 * price)
        rows.append([f"POL{500_000 + k}", f"{price:.2f}", int(rng.integers(18, 85)),
                     rng.choice(["yes", "no"]), "renewed" if stays else "lapsed"])  # fmt: skip
    return write(folder / "renewals.csv", ["policy", "premium", "age", "claims", "status"], rows)


def price_test(folder: Path) -> Path:
    """Write a test of two prices."""
    rng = np.random.default_rng(22)
    rows = []
    for k in range(5_000):
        price = 39 if rng.random() < 0.4 else 59
        when = f"2015-03-{1 + k % 28:02d} 06:{k % 60:02d}:00"
        hit = int(rng.random() < (0.06 if price == 39 else 0.035))
        rows.append([when, rng.choice(["seo", "direct"]), price, hit])
    return write(folder / "test_results.csv", ["timestamp", "source", "price", "converted"], rows)


def rising(folder: Path) -> Path:
    """Write prices that stand for a quality that is not in the table."""
    rng = np.random.default_rng(23)
    quality = rng.normal(size=800)
    price = np.round(20 + 5 * quality + rng.normal(size=800), 2)
    bought = (rng.random(800) < sigmoid(1.5 * quality - 0.02 * price)).astype(int)
    return write(folder / "rising.csv", ["price", "bought"], [*zip(price, bought)])


def separated(folder: Path) -> Path:
    """Write quotes of which one channel never sells."""
    rng = np.random.default_rng(24)
    rows = []
    for _ in range(800):
        way, price = rng.choice(["web", "shop", "phone"], p=[0.6, 0.3, 0.1]), rng.uniform(10, 40)
        sold = way != "phone" and rng.random() < sigmoid(2 - 0.08 * price)
        rows.append([round(price, 2), way, int(sold)])
    return write(folder / "groups.csv", ["price", "channel", "bought"], rows)


def baskets(folder: Path) -> Path:
    """Write a panel of baskets: sales alone, without a price and without refusals."""
    rng = np.random.default_rng(25)
    rows = [
        [2_375 + k % 120, 1_000 + k // 3, int(rng.integers(1, 4)), round(rng.uniform(0.8, 9), 2)]
        for k in range(1_500)
    ]
    names = ["household_key", "BASKET_ID", "QUANTITY", "SALES_VALUE"]
    return write(folder / "transaction_data.csv", names, rows)


def till_report(folder: Path) -> Path:
    """Write a till's report per day: a title, customers, units, takings, and a sum at the end."""
    rng = np.random.default_rng(27)
    rows = []
    total = 0.0
    weekdays = ["Mo", "Di", "Mi", "Do", "Fr", "Sa", "So"]
    for k in range(300):
        day = datetime.date(2023, 1, 2) + datetime.timedelta(k)
        price, seen = float(rng.choice([1.79, 1.99, 2.19, 2.49, 2.79])), int(rng.poisson(118)) + 1
        sold = int(rng.binomial(seen, sigmoid(1.0 - 1.3 * price)))
        total += sold * price
        rows.append([f"{day:%d.%m.%Y}", weekdays[day.weekday()],
                     "Bio-Milch 1L", f"{with_comma(price)} €", seen, sold,
                     f"{with_comma(sold * price)} €"])  # fmt: skip
    rows.append(["Summe", "", "", "", "", "", f"{with_comma(total)} €"])
    names = ["Datum", "Wochentag", "Artikel", "VK-Preis", "Kunden", "Menge", "Umsatz"]
    above = ["Filiale 17 Kassenbericht;;;;;;", "Zeitraum: 02.01.2023 - 28.10.2023;;;;;;"]
    return write(folder / "kassenbericht.csv", names, rows, ";", "utf-8-sig", above=above)


def conjoint_export(folder: Path) -> Path:
    """Write a survey institute's export: brands, weights, and a row for none without attributes."""
    rng = np.random.default_rng(28)
    rows = []
    for person in range(150):
        about = [round(float(rng.uniform(0.6, 1.7)), 3), int(rng.integers(1, 6))]
        for task in range(8):
            price, hours = rng.choice([199, 249, 299, 349], 3), rng.choice([8, 12, 16], 3)
            utility = np.array([0.4, 0.0, -0.3]) - 0.012 * (price - 270) + 0.08 * (hours - 12)
            utility = np.append(utility, 0.2) + rng.gumbel(size=4)
            taken = utility.argmax()
            shown = [*zip(["Aro", "Belo", "Cima", "None"], [*price, ""], [*hours, ""])]
            rows += [[1000 + person, task + 1, k + 1, *one, int(k == taken), *about]
                     for k, one in enumerate(shown)]  # fmt: skip
    names = ["sys_RespNum", "Task", "Concept", "Brand", "Price", "Battery (h)", "Response"]
    return write(folder / "cbc_export.csv", [*names, "WEIGHT", "S1_AGE"], rows)


def hotel_quotes(folder: Path) -> Path:
    """Write a hotel's quotes: an answer in one of three words, and a total if it was booked."""
    rng = np.random.default_rng(29)
    rows = []
    for k in range(1_400):
        day = datetime.datetime(2024, 1, 3, 8) + datetime.timedelta(hours=3.1 * k)
        nights, lead = int(rng.integers(1, 6)), int(rng.exponential(30))
        rate, room = float(np.round(rng.uniform(79, 189))), rng.choice(["DBL", "SGL", "SUI"])
        sold = rng.random() < sigmoid(2.2 - 0.022 * rate + 0.5 * (room == "SUI") - 0.004 * lead)
        rows.append([f"Q{240_000 + k}", f"{day:%Y-%m-%d %H:%M}", nights, lead, room,
                     rng.choice(["OTA", "direct", "phone"]),
                     f"EUR {rate:.2f}" if rng.random() > 0.02 else "on request",
                     "confirmed" if sold else rng.choice(["declined", "expired"]),
                     f"{rate * nights:.2f}" if sold else ""])  # fmt: skip
    names = ["Quote No", "Quoted at", "Nights", "Lead time", "Room type", "Channel"]
    return write(folder / "quotes.csv", [*names, "Nightly rate", "Status", "Total booked"], rows)


def price_experiment(folder: Path) -> Path:
    """Write a web shop's price test: comments, variants, days as numbers, revenue of purchases."""
    rng = np.random.default_rng(30)
    user = rng.integers(0, 900, 2_500)
    rows = []
    for k in range(2_500):
        which, device = rng.integers(0, 4), rng.choice(["mobile", "desktop", "tablet"])
        price = [9.99, 12.99, 14.99, 19.99][which]
        sold = rng.random() < sigmoid(0.3 - 0.14 * price + 0.4 * (device == "desktop"))
        rows.append([f"{1_700_000_000 + 7 * k}.{k}", f"GA1.{100_000 + 37 * user[k]}",
                     f"202405{1 + k * 30 // 2_500:02d}", "ABCD"[which], price, "USD", device,
                     int(sold), f"{price if sold else 0:.2f}"])  # fmt: skip
    names = ["session_id", "user_pseudo_id", "event_date", "variant", "price_shown", "currency",
             "device_category", "purchase", "purchase_revenue"]  # fmt: skip
    above = ["# ------", "# Explore: price test", "# 20240501-20240530"]
    return write(folder / "price_test.csv", names, rows, above=above)


def loyalty_offers(folder: Path) -> Path:
    """Write offers of a loyalty programme: cards, weeks, chances in percent, J and N."""
    rng = np.random.default_rng(31)
    offers = ["Coffee -20%", "Bread 2for1", "Juice -1 EUR", "Cheese -15%", "Chocolate 3for2"]
    share, rates = [0.3, 0.25, 0.2, 0.15, 0.1], [0.10, 0.16, 0.08, 0.12, 0.22]
    tier = rng.choice(["basic", "silver", "gold"], 1_500, p=[0.6, 0.3, 0.1])
    rows = []
    for k in range(6_000):
        offer, card = rng.choice(5, p=share), int(rng.integers(0, 1_500))
        used = rng.random() < rates[offer] * (1.4 if tier[card] == "gold" else 1.0)
        rows.append([f"2621{card * 7919 % 10**8:08d}", f"2024-W{1 + k // 120:02d}",
                     101 + int(rng.integers(0, 12)), offers[offer], f"{100 * share[offer]:.0f} %",
                     tier[card], int(rng.integers(0, 5_000)), "J" if used else "N"])  # fmt: skip
    names = ["Card No", "Week", "Store", "Offer", "Assignment probability", "Tier", "Points",
             "Redeemed"]  # fmt: skip
    return write(folder / "offers.csv", names, rows, ";")


def panel(name: str) -> Generator:
    """Return a generator of quotes to households whose column has a given name."""

    def make(folder: Path) -> Path:
        rng = np.random.default_rng(26)
        rows = []
        for who in range(60):
            level = rng.normal(0, 0.7)
            for _ in range(20):
                price = round(rng.uniform(1, 5), 2)
                sold = int(rng.random() < sigmoid(2.5 + level - price))
                rows.append([1_000 + 7 * who, price, sold])
        return write(folder / f"panel_{name}.csv", [name, "price", "bought"], rows)

    return make


ID_NAMES = (
    "household", "member_id", "panelist", "account", "respondent", "hhid", "subscriber", "patient",
    "shopper", "loyalty_card", "kundennummer",
)  # fmt: skip


def customer_numbers(folder: Path) -> Path:
    """Write quotes in a German layout with a customer's number in every row."""
    rng = np.random.default_rng(41)
    price = rng.uniform(20, 60, 600)
    bought = rng.random(600) < sigmoid(3 - 0.08 * price)
    rows = [[100_000 + k, with_comma(price[k]), "Ja" if bought[k] else "Nein"] for k in range(600)]
    return write(folder / "angebote.csv", ["Kundennr", "Angebotspreis", "Gekauft"], rows, ";",
                 "latin-1")  # fmt: skip


def mixed_encodings(folder: Path) -> Path:
    """Write quotes in UTF-8 of which some lines were pasted from a file in cp1252."""
    rng = np.random.default_rng(42)
    price = rng.uniform(20, 60, 600)
    bought = rng.random(600) < sigmoid(3 - 0.07 * price)
    rows = [[f"{price[k]:.2f} €", "ja" if bought[k] else "nein", "Köln" if k % 2 else "Ulm"]
            for k in range(600)]  # fmt: skip
    path = write(folder / "export.tsv", ["Preis", "Gebucht?", "Ort"], rows, "\t")
    town = "Köln".encode()
    path.write_bytes(path.read_bytes().replace(town, "Köln".encode("cp1252"), 3))
    return path


def unknown_responses(folder: Path) -> Path:
    """Write offers of which some responses are -1, for unknown."""
    rng = np.random.default_rng(43)
    price = rng.uniform(5, 15, 600)
    taken = (rng.random(600) < sigmoid(4 - 0.4 * price)).astype(int)
    taken[rng.random(600) < 0.05] = -1
    return write(folder / "offers.csv", ["price", "accepted"],
                 [[f"{p:.2f}", y] for p, y in zip(price, taken)])  # fmt: skip


def receipts(folder: Path) -> Path:
    """Write the amounts of receipts: nobody who did not buy."""
    rng = np.random.default_rng(44)
    rows = [[k, f"{rng.uniform(5, 15):.2f}", rng.integers(1, 200)] for k in range(500)]
    return write(folder / "receipts.csv", ["receipt", "amount", "card"], rows)


def with_points(value: float, sign: str = "") -> str:
    """Return whole euros with a point between thousands, as in Germany."""
    return f"{value:,.0f}".replace(",", ".") + sign


def thousands(folder: Path) -> Path:
    """Write prices such as 1.299 €, whose points separate thousands and no decimals."""
    rng = np.random.default_rng(51)
    price = rng.integers(700, 3_500, 1_500)
    bought = rng.random(1_500) < sigmoid(2.5 - 0.0016 * price)
    rows = [[with_points(p, " €"), rng.choice(["Nord", "Sued"]), "JA" if b else "nein"]
            for p, b in zip(price, bought)]  # fmt: skip
    return write(folder / "moebel.csv", ["Preis", "Region", "Gekauft"], rows, ";", "cp1252")


CODES = {"0001": 0.0, "0002": 0.8, "0010": -0.8, "0100": 0.5, "0200": 1.2, "1000": -1.0}
"""Effect of a product on the utility by its code."""


def product_codes(folder: Path) -> Path:
    """Write sales of products whose codes begin with zeros."""
    rng = np.random.default_rng(52)
    rows = []
    for code in rng.choice([*CODES], 3_000):
        price = round(rng.uniform(5, 20), 2)
        rows.append([code, price, int(rng.random() < sigmoid(2 + CODES[code] - 0.2 * price))])
    return write(folder / "artikel.csv", ["artikel", "price", "bought"], rows)


def choices_of_codes(folder: Path) -> Path:
    """Write choices among articles whose numbers begin with zeros, in sets of several sizes."""
    rng = np.random.default_rng(53)
    rows = []
    for k in range(600):
        size = int(rng.integers(2, 5))
        shown = rng.choice(["007", "012", "100", "0200"], size, replace=False)
        price = np.round(rng.uniform(1, 5, size), 2)
        utility = 1.5 - 0.8 * price + rng.gumbel(size=size)
        taken = int(utility.argmax()) if utility.max() > rng.gumbel() else -1
        rows += [[k, shown[i], price[i], int(i == taken)] for i in range(size)]
    return write(folder / "regal.csv", ["set", "sku", "price", "chosen"], rows)


def merged_rows(count: int = 200) -> list[list[Any]]:
    """Return days with a list price, the price that was paid, visitors and units."""
    rng = np.random.default_rng(54)
    rows = []
    for k in range(count):
        list_price = round(float(rng.uniform(4, 6)), 2)
        paid = round(list_price * float(rng.choice([1.0, 0.9, 0.8, 0.7, 0.6])), 2)
        seen = int(rng.poisson(60)) + 1
        day = datetime.date(2024, 1, 1) + datetime.timedelta(k)
        rows.append([day, list_price, paid, seen, int(rng.binomial(seen, sigmoid(2 - 0.7 * paid)))])
    return rows


MERGED = [["Day", "Price", "", "Sales", ""], ["", "List", "Paid", "Visitors", "Units"]]
"""A header of two rows: cells of the first span two columns."""


def merged_workbook(folder: Path) -> Path:
    """Write an Excel sheet whose header has two rows, the first with merged cells."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    for row in ([cell or None for cell in row] for row in MERGED):
        sheet.append(row)
    sheet.merge_cells("B1:C1")
    sheet.merge_cells("D1:E1")
    for row in merged_rows():
        sheet.append(row)
    book.save(folder / "merged.xlsx")
    return folder / "merged.xlsx"


def merged_text(folder: Path) -> Path:
    """Write the same as a text file."""
    rows = [[day, f"{a:.2f}", f"{b:.2f}", n, sold] for day, a, b, n, sold in merged_rows()]
    return write(folder / "merged.csv", MERGED[0], [MERGED[1], *rows], ";")


def monthly_sheets(folder: Path) -> Path:
    """Write a workbook with a cover and a sheet of quotes per month."""
    import openpyxl

    rng = np.random.default_rng(55)
    book = openpyxl.Workbook()
    cover = book.active
    cover.title = "Info"
    for row in (["Report", "Price test"], ["Author", "Sales"], ["Created", "2024-05-01"]):
        cover.append(row)
    for month in ("Jan", "Feb"):
        sheet = book.create_sheet(month)
        sheet.append(["Customer", "Price", "Bought"])
        for k in range(400):
            price = round(float(rng.uniform(20, 60)), 2)
            sold = rng.random() < sigmoid(3 - 0.08 * price)
            sheet.append([k, price, "yes" if sold else "no"])
    book.save(folder / "months.xlsx")
    return folder / "months.xlsx"


def days_with_totals(folder: Path) -> Path:
    """Write days with subtotals of weeks, and a total that has the mean price and all units."""
    rng = np.random.default_rng(56)
    rows: list[list[Any]] = []
    week: list[list[Any]] = []
    for k in range(140):
        price, seen = float(rng.choice([2.0, 2.5, 3.0, 3.5, 4.0])), int(rng.poisson(60)) + 1
        week.append([f"day {k}", price, seen, int(rng.binomial(seen, sigmoid(2 - price)))])
        if len(week) == 28:
            rows += [*week, _sum_of("Subtotal", week)]
            week = []
    days = [row for row in rows if row[0] != "Subtotal"]
    return write(folder / "till.csv", ["day", "price", "visitors", "units"],
                 [*rows, _sum_of("Total", days)])  # fmt: skip


def _sum_of(word: str, rows: list[list[Any]]) -> list[Any]:
    price = round(float(np.mean([row[1] for row in rows])), 2)
    return [word, price, sum(row[2] for row in rows), sum(row[3] for row in rows)]


def nested_events(folder: Path) -> Path:
    """Write JSON lines with an object inside of each."""
    rng = np.random.default_rng(57)
    lines = []
    for k in range(900):
        price = round(rng.uniform(3, 12), 2)
        about = {"age": int(rng.integers(18, 80)), "plan": {"tier": "gold" if k % 5 else "base"}}
        sold = rng.random() < sigmoid(2.5 - 0.4 * price)
        lines.append(json.dumps({"offer_price": f"{price} EUR", "customer": about,
                                 "accepted": "Y" if sold else "N"}))  # fmt: skip
    path = folder / "nested.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def discounts(folder: Path) -> Path:
    """Write list prices with a discount in percent, of which customers pay the rest."""
    rng = np.random.default_rng(58)
    rows = []
    for _ in range(2_000):
        price, less = float(rng.choice([19.99, 24.99, 29.99])), int(rng.choice([0, 10, 20, 30]))
        sold = int(rng.random() < sigmoid(2.5 - 0.12 * price * (1 - less / 100)))
        rows.append([price, f"{less}%", sold])
    return write(folder / "discounts.csv", ["price", "discount", "bought"], rows)


def gifts(folder: Path) -> Path:
    """Write quotes of which some are 0, as of gifts, and some below, as of refunds."""
    rng = np.random.default_rng(59)
    rows = []
    for k in range(1_500):
        price = round(rng.uniform(5, 20), 2)
        sold = int(rng.random() < sigmoid(2.5 - 0.2 * price))
        rows.append([0 if k % 40 == 3 else -price if k % 60 == 7 else price, sold])
    return write(folder / "gifts.csv", ["price", "bought"], rows)


def returns(folder: Path) -> Path:
    """Write days of which some have more returns than sales."""
    rng = np.random.default_rng(60)
    rows = []
    for k in range(300):
        price, seen = float(rng.choice([2.0, 2.5, 3.0, 3.5, 4.0])), int(rng.poisson(60)) + 1
        sold = int(rng.binomial(seen, sigmoid(2 - price)))
        rows.append([price, seen, -(k % 3) - 1 if k % 25 == 4 else sold])
    return write(folder / "returns.csv", ["price", "visitors", "units"], rows)


def marked(word: str) -> Generator:
    """Return a generator of quotes in which buyers have a mark and others nothing."""

    def make(folder: Path) -> Path:
        rng = np.random.default_rng(61)
        rows = []
        for _ in range(1_000):
            price = round(rng.uniform(5, 20), 2)
            rows.append([price, word if rng.random() < sigmoid(2.6 - 0.2 * price) else ""])
        return write(folder / f"marked_{word}.csv", ["price", "bought"], rows)

    return make
