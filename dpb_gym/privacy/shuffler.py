"""Shufflers: they take the bits of devices and return how many ones a batch has."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.validation import FloatArray

HEADER = ("batch", "customers", "coordinates", "bits_each")


class Shuffler(Protocol):
    """Party that permutes the bits of a batch, so that each bit loses its sender and its company.

    A device hands over single bits, each with its coordinate, and the public numbers of its batch.
    The message has no decision number. Every bit of a coordinate is permuted on its own among all
    bits of the batch and that coordinate. Permuted bits reveal only their number of ones, so that
    numbers of ones are the output.

    The proof needs all devices of a batch. A shuffler must therefore release nothing of a batch
    with fewer messages than ``customers``, and take no further message for it.
    """

    def submit(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the bits of one device.

        Args:
            message: `dpb_gym.Device.message`, JSON values: ``batch``, ``customers``,
                ``coordinates`` and ``bits_each``, which are the same for all devices of the batch;
                ``once``, a random text against repeated delivery; ``bits``, a text of 0 and 1 per
                coordinate.

        Returns:
            The batch if this message completes it, else None: the first four numbers and ``ones``,
            the number of ones per coordinate, for `dpb_gym.Session.receive_batch`.

        Raises:
            ParameterError: If it is no such message, was taken before, or its batch is complete.
        """


@dataclass
class _Open:
    """A batch that is not complete."""

    header: dict[str, int]
    ones: FloatArray
    seen: set[str] = field(default_factory=set)


class CountingShuffler:
    """Shuffler that adds up the bits of each coordinate as they arrive.

    A sum does not depend on the order of the bits, so it reveals what permuted bits reveal. It
    stores no message: only the numbers of ones, and which random texts ``once`` came. It can run
    in a process of its own (``examples/split_session.py``), and may be used by several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._complete: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        vars(self).update(parts, _lock=threading.Lock())

    def submit(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take the bits of one device; see `Shuffler.submit`."""
        header, once, bits = _read(message)
        # a batch whose ones were added in part would count as complete in another thread
        with self._lock:
            return self._added(header, once, bits)

    def _added(
        self, header: dict[str, int], once: str, bits: Sequence[str]
    ) -> dict[str, Any] | None:
        """Add a message to its batch; return the batch if it is complete then."""
        number = header["batch"]
        if number in self._complete:
            raise ParameterError(f"batch {number} is complete: the message came too late")
        fresh = _Open(header, np.zeros(header["coordinates"]))
        batch = self._open.get(number, fresh)
        # bits of different lengths would tell their senders apart
        if batch.header != header:
            raise ParameterError(
                f"other devices of batch {number} have {batch.header}, this one has {header}"
            )
        if once in batch.seen:
            raise ParameterError("the message was taken already")
        self._open[number] = batch
        batch.seen.add(once)
        batch.ones += [text.count("1") for text in bits]
        if len(batch.seen) < header["customers"]:
            return None
        # a later message would be a batch of its own, without others to hide in
        self._complete.add(number)
        del self._open[number]
        return {**header, "ones": [int(one) for one in batch.ones]}


def _read(message: Mapping[str, Any]) -> tuple[dict[str, int], str, Sequence[str]]:
    """Return the public numbers, ``once`` and the bits of a device's message."""
    known = dict.fromkeys((*HEADER, "once", "bits"))
    given = validation.settings("a message to a shuffler", message, known)
    header = {}
    for name in HEADER:
        least = 0 if name == "batch" else 1
        header[name] = validation.integer(name, given[name], least)
    once = given["once"]
    bits = given["bits"]
    # short texts could repeat by chance, and long ones fill the memory
    if not isinstance(once, str) or not 16 <= len(once) <= 64:
        raise ParameterError(f"once must be a random text of 16 to 64 letters, got {shown(once)}")
    right = isinstance(bits, Sequence) and len(bits) == header["coordinates"]
    for text in bits if right else ():
        right = right and isinstance(text, str) and len(text) == header["bits_each"]
        right = right and not text.strip("01")
    if not right:
        raise ParameterError(
            f"bits must be {header['coordinates']} texts of {header['bits_each']} letters 0 and 1"
        )
    return header, once, bits


def bits_of(ones: FloatArray, each: int) -> list[str]:
    """Return a device's bits for numbers of ones ``(width,)``: `each` per coordinate, permuted.

    The places of the ones are drawn from the operating system's entropy.
    """
    # not the session's generator, whose seed the server knows
    rng = np.random.default_rng()
    texts = []
    for number in ones:
        bits = np.full(each, ord("0"), np.uint8)
        bits[: int(number)] = ord("1")
        texts.append(rng.permutation(bits).tobytes().decode("ascii"))
    return texts
