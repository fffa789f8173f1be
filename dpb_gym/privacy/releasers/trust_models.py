"""Trust models of sums: who adds the noise, and who adds up.

A trust model is data. What a device sends in it is the mechanism's matter (`mechanisms`).
docs/trust.md compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpb_gym import state
from dpb_gym.errors import unknown_name
from dpb_gym.privacy.releasers.mechanisms import Bits, Discrete, Gaussian, Mechanism, Randomised


@state.register
@dataclass(frozen=True)
class TrustModel:
    """Who is trusted with what.

    Attributes:
        name: As in a budget's text.
        notion: Notion of the guarantee; "" where the agent states it.
        devices: Whether customers' devices add noise to their messages; otherwise the curator adds
            it to sums of raw records.
        per_record: Whether a message has all of its noise, rather than a part of the batch's.
        whole: Whether messages are whole numbers.
        aggregated: Whether a `SecureAggregator` adds up, so that the server sees no message.
    """

    name: str
    notion: str = ""
    devices: bool = True
    per_record: bool = False
    whole: bool = False
    aggregated: bool = False


# no notion: agents of a trusted curator state it, central or joint
TRUSTED_CURATOR = TrustModel("curator", devices=False)
AGGREGATOR = TrustModel("aggregator", "aggregate", whole=True, aggregated=True)
SHUFFLER = TrustModel("shuffler", "shuffle", whole=True)
LOCAL = TrustModel("local", "local", per_record=True)

TRUST_MODELS = {each.name: each for each in (TRUSTED_CURATOR, AGGREGATOR, SHUFFLER, LOCAL)}
PLANNED: dict[str, type[Mechanism]] = {
    "curator": Gaussian,
    "aggregator": Discrete,
    "shuffler": Bits,
    "local": Randomised,
}
"""Mechanism of sums with planned releases, by trust model."""


def trust_model(name: str) -> TrustModel:
    """Return the trust model of a name.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in TRUST_MODELS:
        raise unknown_name("trust model", name, TRUST_MODELS)
    return TRUST_MODELS[name]
