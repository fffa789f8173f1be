"""Messages of devices: how they are made, checked and added up, in one process or in two.

In a split session the device and the server run in different processes. `Sum.side` says which part
this one has; see docs/trust.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.mechanisms import Message
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.record_entry import RecordState, ends_of
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.privacy.releasers.secure_aggregation import Quantisation, SecureAggregator
from dpb_gym.privacy.releasers.shuffled_bits import ShuffledBits
from dpb_gym.privacy.releasers.trust_models import TrustModel
from dpb_gym.validation import FloatArray

Messages = NDArray[Any]


class MessageState(RecordState, Protocol):
    """What this module uses of a `Sum`, which documents the attributes."""

    trust: TrustModel
    side: str
    mail: Messages | None
    sent: Messages | None
    past: list[dict[str, Any]]
    coming: list[dict[str, Any]]
    device_mechanisms: tuple[Message, ...]
    releases: int
    aggregator: SecureAggregator
    _sigma: float
    _schedule: Schedule
    _stated: FloatArray
    _noise: NoiseSource
    _numbers: Segment | None
    _own: FloatArray
    _along: FloatArray
    _total: FloatArray
    _opened: int

    @property
    def message_width(self) -> int: ...


def mechanism_now(sums: MessageState) -> Message:
    """Return what devices do in the open batch; after the last one, what they did in it."""
    return sums.device_mechanisms[min(sums.releases, len(sums.device_mechanisms) - 1)]


def number_record(sums: MessageState, records: ArrayLike, along: ArrayLike | None) -> None:
    """Set the newest records from numbers along public directions, which messages leave out."""
    numbers = sums._numbers
    assert numbers is not None
    values = validation.array("values", records, (sums.replicates,))
    sums._along = validation.array("directions", along, (sums.replicates, sums.shape.width))
    ends_of(sums, sums._along)
    centred = np.minimum(np.maximum(values, numbers.low), numbers.high) - _middle(numbers)
    # without a direction the message says nothing about the number
    sums._own = np.where(sums._along.any(axis=1), centred, 0.0)[:, None]


def send(sums: MessageState) -> None:
    """Turn the newest records into messages, and add those that have arrived.

    Records after the last release are in no message.
    """
    if sums.releases == len(sums._schedule.ends):
        return
    if sums.side == "device":
        sums.mail = mechanism_now(sums).of(sums._own, sums._noise)
        return
    if sums.side:
        if sums.mail is not None:
            receive(sums, sums.mail)
    elif sums._sigma:
        receive(sums, mechanism_now(sums).of(sums._own, sums._noise))
    else:  # the exact copy of an audit
        sums._total += expanded(sums, sums._own)


def receive(sums: MessageState, messages: Messages) -> None:
    """Add the messages of one round to the open batch."""
    mechanism = mechanism_now(sums)
    if isinstance(mechanism, Quantisation):
        if sums._opened != sums.releases:
            sums.aggregator.open(messages.shape, mechanism.modulus)
            sums._opened = sums.releases
        sums.aggregator.submit(messages.astype(np.int64, copy=False))
        return
    if sums.trust.per_record:
        sums.sent = messages
    sums._total += expanded(sums, mechanism.row(messages))


def expanded(sums: MessageState, rows: FloatArray) -> FloatArray:
    """Return what messages add to the sum: numbers times the direction, if they are numbers."""
    numbers = sums._numbers
    if numbers is None:
        return rows
    # a message can exceed the range of its number; the direction has norm at most 1
    norms = np.sqrt((sums._along**2).sum(axis=1, keepdims=True))
    return np.asarray((rows + _middle(numbers)) * sums._along / np.maximum(1.0, norms))


def closed(sums: MessageState) -> tuple[FloatArray, int]:
    """Return the release of the open batch ``(B, width)``, and the number of devices in it."""
    k = sums.releases
    if sums.side == "replica":
        release = sums.coming.pop(0)
        devices = int(release["devices"])
        _state_scale(sums, devices)
        return np.array(release["sum"])[None], devices
    if not sums._sigma:
        return sums._total, 0
    mechanism = mechanism_now(sums)
    if not isinstance(mechanism, Quantisation):
        devices = int(sums._schedule.sizes[k])
        return mechanism.released(sums._total, devices), devices

    residues, devices, why = _total(sums, mechanism)
    if devices < mechanism.enough:
        left = f"{devices} of {mechanism.clients} devices are left, {mechanism.enough} needed"
        warnings.warn(
            f"batch {k + 1}: nothing of it was released: {why or left}",
            RuntimeWarning,
            stacklevel=2,
        )
    _state_scale(sums, devices)
    return mechanism.released(residues, devices), devices


def _total(sums: MessageState, mechanism: Quantisation) -> tuple[Messages, int, str]:
    """Return the residues of the open batch, the number of devices, and why there are none.

    A total that no batch can have counts as one without devices. An error would leave the batch
    open for ever.
    """
    shape = (sums.replicates, sums.message_width)
    try:
        residues, devices = sums.aggregator.total()
        devices = validation.integer("the number of devices", devices, 0, mechanism.clients)
        right = isinstance(residues, np.ndarray) and residues.shape == shape
        if not right or residues.dtype.kind not in "iu":
            given = shown(residues)
            raise ParameterError(f"the sum must be integers of shape {shape}, got {given}")
    except Exception as error:  # code of another package, and a protocol between machines
        return np.zeros(shape, np.int64), 0, f"the aggregator failed ({error!r})"
    # unsigned integers would wrap around below 0
    return (residues % mechanism.modulus).astype(np.int64), devices, ""


def _state_scale(sums: MessageState, devices: int) -> None:
    """State the scale of the open batch for the number of devices in its sum.

    The plan and what devices add do not change, so what is stated decides no privacy.
    """
    mechanism = mechanism_now(sums)
    if isinstance(mechanism, Quantisation):
        k = sums.releases
        sums._stated[k] = mechanism.stated_scale(float(sums._stated[k]), devices)


def stated(sums: MessageState) -> Schedule:
    """Return the schedule with the scales of the noise that the releases have."""
    return replace(sums._schedule, scales=sums._stated)


def message_parts(sums: MessageState, message: Mapping[str, Any]) -> tuple[Any, int, Messages]:
    """Return the parts of a device's message; see `Sum.message_parts`."""
    modulus = getattr(mechanism_now(sums), "modulus", None)
    fields = ["decision", "batch", "values"]
    if modulus is not None:
        fields.append("modulus")
    given = validation.settings("a message of a device", message, dict.fromkeys(fields))
    batch = validation.integer("batch", given["batch"], 0, sums.releases)
    # the modulus of an earlier batch can be another one, and its messages are refused as late
    if modulus is not None and batch == sums.releases:
        validation.integer("modulus", given["modulus"], modulus, modulus)
    try:
        values = np.array(given["values"])[None]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"values must be a list of numbers: {error}") from error
    return given["decision"], batch, values


def check_message(sums: MessageState, messages: Messages) -> None:
    """Raise ParameterError unless devices can have sent the messages ``(B, n)`` of a round."""
    over = sums.releases == len(sums._schedule.ends)
    # after the last release devices send nothing, but a local message can be late
    if over and messages.shape == (sums.replicates, 0):
        return
    if over and not sums.trust.per_record:
        raise ParameterError(
            f"all batches were released, so a message has no values; got {shown(messages[0])}"
        )
    assert sums.clip is not None
    mechanism = mechanism_now(sums)
    shape = (sums.replicates, sums.message_width)
    low, high = mechanism.bounds(sums.clip.longest)
    right = messages.shape == shape and messages.dtype.kind in "if"
    right = right and bool(((messages >= low) & (messages <= high)).all())
    if not right or (sums.trust.whole and (messages % 1 != 0).any()):
        kind = "whole numbers" if sums.trust.whole else "numbers"
        raise ParameterError(
            f"a message has {shape[1]} {kind} in [{low:g}, {high:g}]; got {shown(messages[0])}"
        )


def header_of(sums: MessageState) -> dict[str, int]:
    """Return the public numbers of the open batch of a shuffler; see `Sum.header`."""
    if sums.releases == len(sums.device_mechanisms):
        raise ParameterError("all batches were released: no more bits are needed")
    bits = mechanism_now(sums)
    if not isinstance(bits, ShuffledBits):
        raise ParameterError("a header is for messages to a shuffler: give a budget with @shuffler")
    return {
        "batch": sums.releases,
        "customers": bits.batch,
        "coordinates": sums.shape.width,
        "bits_each": bits.each,
    }


def receive_batch(sums: MessageState, shuffled: Mapping[str, Any]) -> int:
    """Take the output of a `Shuffler` for the open batch; see `Sum.receive_batch`."""
    header = header_of(sums)
    known = dict.fromkeys((*header, "ones"))
    given = validation.settings("a shuffled batch", shuffled, known)
    if any(type(given[name]) is not int or given[name] != header[name] for name in header):
        raise ParameterError(f"the open batch is {header}; got {shown(given)}")
    most = header["customers"] * header["bits_each"]
    ones = validation.array("ones", given["ones"], (header["coordinates"],), 0, most)
    if (ones % 1 != 0).any() or any(isinstance(one, bool) for one in given["ones"]):
        raise ParameterError("ones must be whole numbers")
    sums._total[:] = ones
    return header["customers"]


def _middle(numbers: Segment) -> float:
    return 0.5 * (numbers.low + numbers.high)
