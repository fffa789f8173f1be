"""Shufflers: what they take, and what an attacker learns from what they return."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from curated import curator
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, rankdata

import dpb_gym
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import CountingShuffler, NoiseSource, ReleaseModel, Schedule
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.shuffled_bits import FLIP, ShuffledBits
from dpb_gym.privacy.shuffler import HEADER, bits_of

CUSTOMERS, COORDINATES, EACH = 4, 3, 7


def message(ones=(1, 2, 3), *, number=0, **changes):
    """Return the message of device `number` of the first batch."""
    header = dict(zip(HEADER, (0, CUSTOMERS, COORDINATES, EACH)))
    bits = bits_of(np.array(ones), EACH)
    return {**header, "once": f"{number:016d}", "bits": bits, **changes}


class TestCountingShuffler:
    @settings(max_examples=50, deadline=None)
    @given(
        ones=st.lists(
            st.lists(st.integers(0, EACH), min_size=COORDINATES, max_size=COORDINATES),
            min_size=CUSTOMERS,
            max_size=CUSTOMERS,
        ),
        order=st.permutations(range(CUSTOMERS)),
    )
    def test_its_output_is_the_number_of_ones_in_any_order(self, ones, order):
        shuffler = CountingShuffler()
        outputs = [shuffler.submit(message(ones[k], number=k)) for k in order]
        assert outputs[:-1] == [None] * (CUSTOMERS - 1)
        header = dict(zip(HEADER, (0, CUSTOMERS, COORDINATES, EACH)))
        assert outputs[-1] == {**header, "ones": np.sum(ones, axis=0).tolist()}

    def test_it_stores_no_message(self):
        shuffler = CountingShuffler()
        shuffler.submit(message(number=1))
        (batch,) = shuffler._open.values()
        assert set(vars(batch)) == {"header", "ones", "seen"}
        assert batch.ones.tolist() == [1, 2, 3]

    def test_a_message_counts_once(self):
        shuffler = CountingShuffler()
        for _ in range(2 * CUSTOMERS):
            with pytest.raises(ParameterError, match="already"):
                shuffler.submit(message(number=1))
                shuffler.submit(message(number=1))
        assert len(shuffler._open[0].seen) == 1

    def test_threads_of_a_server_complete_a_batch_once_and_wholly(self):
        each = 200_000
        numbers = {"customers": 14, "coordinates": 8, "bits_each": each, "bits": ["1" * each] * 8}
        for _ in range(4):
            shuffler = CountingShuffler()
            with ThreadPoolExecutor(8) as pool:
                sent = [message(number=k, **numbers) for k in range(14)]
                outputs = list(pool.map(shuffler.submit, sent))
            (batch,) = [output for output in outputs if output is not None]
            assert batch["ones"] == [14 * each] * 8

    def test_it_can_be_stored_and_go_on_elsewhere(self):
        shuffler = CountingShuffler()
        for k in range(CUSTOMERS):
            output = shuffler.submit(message(number=k))
            shuffler = pickle.loads(pickle.dumps(shuffler))
        assert output["ones"] == [CUSTOMERS, 2 * CUSTOMERS, 3 * CUSTOMERS]

    def test_a_complete_batch_takes_no_message(self):
        shuffler = CountingShuffler()
        for k in range(CUSTOMERS):
            shuffler.submit(message(number=k))
        with pytest.raises(ParameterError, match="too late"):
            shuffler.submit(message(number=9))
        assert shuffler.submit(message(number=9, batch=1)) is None

    def test_all_devices_of_a_batch_have_the_same_numbers(self):
        """A server that names a small batch to one customer gets nothing of the others."""
        shuffler = CountingShuffler()
        shuffler.submit(message(number=1))
        with pytest.raises(ParameterError, match="other devices"):
            shuffler.submit(message(number=2, customers=1))
        assert shuffler._open[0].ones.tolist() == [1, 2, 3]

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            {},
            [],
            message(decision=3),
            message(sender="phone 7"),
            message(batch=-1),
            message(batch=True),
            message(customers=0),
            message(coordinates=2),
            message(coordinates=10**12),
            message(bits_each=6),
            message(bits_each=None),
            message(once="short"),
            message(once=17),
            message(once="x" * 65),
            message(bits=[1, 2, 3]),
            message(bits=["0101010"] * 2),
            message(bits=["0101010"] * 2 + ["010101"]),
            message(bits=["0101010"] * 2 + ["0102010"]),
            message(bits=["0101010"] * 2 + ["0101 10"]),
            message(bits=["0101010"] * 2 + ["010101١"]),
            message(bits="010"),
            message(bits=None),
        ],
        ids=lambda _: "",
    )
    def test_other_messages_are_refused(self, wrong):
        shuffler = CountingShuffler()
        with pytest.raises(ParameterError):
            shuffler.submit(wrong)
        assert not shuffler._open


def test_the_places_of_a_device_s_ones_say_nothing():
    """Each place of 8 has 3 ones in 8: within 5 standard deviations of 4,000 draws."""
    drawn = [[bit == "1" for bit in bits_of(np.array([3]), 8)[0]] for _ in range(4000)]
    share = np.mean(drawn, axis=0)
    assert np.sum(drawn, axis=1).tolist() == [3] * 4000
    assert np.abs(share - 3 / 8).max() < 5 * math.sqrt(3 / 8 * 5 / 8 / 4000)


def area(one, two):
    """Return the area under the curve of a score that is larger in world one."""
    ranks = rankdata(np.concatenate([one, two]))[: len(one)]
    return (ranks.sum() - len(one) * (len(one) + 1) / 2) / (len(one) * len(two))


def shuffled(budget, horizon, replicates=1):
    """Return the sums of a served shop: rows of width 9 at most 0.71 long, at distance 1."""
    own = curator(budget, replicates, unit="user-round", horizon=horizon)
    model = ReleaseModel(horizon, 30.0, 0.08, 12.0, 0.24)
    sums = behind(
        own.weighted_sum(
            9, model=model, clip=math.sqrt(0.5), schedule=Schedule.unweighted(np.array([1]))
        )
    )
    sums.ready()
    return own, sums


class TestAttacks:
    """An attacker knows all records but one, and which two records that one can be."""

    RUNS = 4000

    def worlds(self, sums):
        """Return the attacked record in both worlds, and the others' record of zeros."""
        longest = sums.clip.longest
        rows = np.zeros((3, 9))
        rows[0, 0] = longest
        rows[1, 0] = longest - min(sums.sensitivity, 2 * longest)
        return rows

    def counts(self, bits, row, customers, rng_seed):
        """Return numbers of ones ``(RUNS, 9)`` of customers who all have this row."""
        source = NoiseSource.from_seed(rng_seed, self.RUNS)
        total = np.tile(customers * row, (self.RUNS, 1))
        return bits.seen(total, customers, source)

    def exact(self, bits, row):
        """Return the exact distribution of the ones of coordinate 0 in a whole batch."""
        n = bits.batch
        ones = math.floor(row[0] / bits.grid + 0.5) + n * bits.levels
        sent = 2 * n * bits.levels
        parts = ((ones, 1.0 - FLIP), (sent - ones, FLIP), (bits.coins, 0.5))
        distribution = np.ones(1)
        for tosses, p in parts:
            distribution = np.convolve(distribution, binom.pmf(np.arange(tosses + 1), tosses, p))
        return distribution

    @pytest.mark.parametrize("budget", ["rho=0.5@shuffler", "eps=1,delta=1e-5@shuffler"])
    def test_the_ones_of_a_batch_obey_the_claim_exactly(self, budget):
        """Renyi divergences and hockey sticks of the view of a batch, without sampling."""
        own, sums = shuffled(budget, 60)
        claim = own.guarantee
        # few levels, so that all numbers of ones can be enumerated
        bits = ShuffledBits.calibrated(claim.rho, 7, 12, sums)
        rows = self.worlds(sums)
        # the other coordinates have the same distribution in both worlds
        p, q = (self.exact(bits, row) for row in rows[:2])
        assert p.sum() == pytest.approx(1.0) == q.sum()
        for one, two in ((p, q), (q, p)):
            for epsilon in (0.25, 0.5, 1.0, 2.0):
                stick = np.maximum(one - math.exp(epsilon) * two, 0.0).sum()
                assert stick <= claim.delta(epsilon) + 1e-12
            seen = (one > 0) & (two > 0)
            for order in (1.5, 2.0, 8.0):
                logs = order * np.log(one[seen]) + (1 - order) * np.log(two[seen])
                top = logs.max()
                renyi = (top + math.log(np.exp(logs - top).sum())) / (order - 1)
                assert renyi <= claim.rho * order * (1 + 1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("budget", "horizon"),
        [("rho=0.5@shuffler", 10_000), ("eps=1,delta=1e-5@shuffler", 10_000)],
    )
    def test_counts_are_no_better_than_the_claim_and_whole_vectors_are(self, budget, horizon):
        """The likelihood ratio of what the server sees; as control, of the devices' vectors."""
        own, sums = shuffled(budget, horizon)
        most = norm.cdf(math.sqrt(2.0 * own.guarantee.rho) / math.sqrt(2.0))
        rows = self.worlds(sums)
        chosen = [sums.batches[k] for k in (0, len(sums.batches) // 2, -1)]
        for bits in chosen:
            views = [
                self.counts(bits, row, 1, 1 + w) + self.counts(bits, rows[2], bits.batch - 1, 7 + w)
                for w, row in enumerate(rows[:2])
            ]
            # the likelihood ratio grows with the ones of coordinate 0, and is 1 in the others
            auc = area(views[0][:, 0], views[1][:, 0])
            assert 0.5 < auc <= most + 4 * math.sqrt(0.25 / self.RUNS)
        beaten = (self.whole_vectors(bits, rows) > most + 0.05 for bits in reversed(chosen))
        assert any(beaten), "whole vectors, permuted among customers, break the claim"

    def test_the_coins_of_one_device_are_not_enough(self):
        """What a server sees that made all other messages of the batch itself."""
        own, sums = shuffled("rho=0.5@shuffler", 10_000)
        most = norm.cdf(math.sqrt(2.0 * own.guarantee.rho) / math.sqrt(2.0))
        rows, bits = self.worlds(sums), sums.batches[-1]
        alone = [self.counts(bits, row, 1, 1 + w)[:, 0] for w, row in enumerate(rows[:2])]
        assert area(*alone) > most + 0.05

    def test_larger_batches_and_smaller_budgets_need_more_bits(self):
        _, sums = shuffled("rho=0.5@shuffler", 10_000)

        def each(rho, batch):
            levels = ShuffledBits.fine_levels(batch, 9)
            return ShuffledBits.calibrated(rho, batch, levels, sums).each

        assert each(0.5, 200) < each(0.5, 400) < each(0.5, 4000)
        assert each(1.0, 400) < each(0.5, 400) < each(0.02, 400)

    def test_the_shuffler_itself_could_estimate_a_record(self):
        """It is trusted: the bits of one device have little noise, in units of the range."""
        _, sums = shuffled("rho=0.5@shuffler", 10_000)
        rows, bits = self.worlds(sums), sums.batches[-1]
        ones = self.counts(bits, rows[0], 1, 1)
        alone = replace(bits, batch=1, coins=bits.coins // bits.batch)
        errors = alone.unbiased(ones) - rows[0]
        assert np.abs(errors.mean(axis=0)).max() < 5 * alone.sigma / math.sqrt(self.RUNS)
        assert errors.std() / (2 * sums.clip.longest) < 0.03

    def whole_vectors(self, bits, rows, runs=300, most=300):
        """Return the area of an attacker who sees each device's vector, without its sender."""
        rng = np.random.default_rng(0)
        each = bits.coins // bits.batch
        scale = math.sqrt(0.25 * each + 2 * bits.levels * FLIP * (1 - FLIP))
        keep = 1 - 2 * FLIP

        def mean(row):
            ones = np.floor(row / bits.grid + 0.5) + bits.levels
            return keep * ones + FLIP * 2 * bits.levels + 0.5 * each

        def vectors(row, number):
            ones = (np.floor(row / bits.grid + 0.5) + bits.levels).astype(int)
            kept = rng.binomial(ones, 1 - FLIP, (number, 9))
            flipped = rng.binomial(2 * bits.levels - ones, FLIP, (number, 9))
            return kept + flipped + rng.binomial(each, 0.5, (number, 9))

        scores = np.empty((2, runs))
        for world, row in enumerate(rows[:2]):
            for run in range(runs):
                others = vectors(rows[2], min(bits.batch, most) - 1)
                seen = np.vstack([vectors(row, 1), others])
                far = [((seen - mean(r)) ** 2).sum(axis=1) / (2 * scale**2) for r in rows]
                ratios = [np.logaddexp.reduce(far[2] - far[w]) for w in (0, 1)]
                scores[world, run] = ratios[0] - ratios[1]
        return area(*scores)


@pytest.mark.parametrize("budget", ["rho=0.02", "rho=1", "eps=5,delta=1e-5"])
def test_the_noise_of_batches_is_that_of_the_documentation(budget: str) -> None:
    """Between 1.1 and 1.4 times s, the noise of a sum of all records by a curator."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=30_000)
    session = dpb_gym.serve(
        "one-pass-pricing", f"{budget}@shuffler", problem, noise="seeded", warm=False
    )
    sums = behind(session.agent.curator.releasers[0])
    rho = session.guarantee.rho
    assert rho is not None
    noise = math.sqrt(np.mean([batch.sigma**2 for batch in sums.batches]))
    assert 1.1 <= noise / (sums.sensitivity / math.sqrt(2 * rho)) <= 1.4
