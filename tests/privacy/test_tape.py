"""A tape repeats what was drawn from outside, and only that."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_gym.errors import CheckpointError
from dpb_gym.privacy import SystemNoise
from dpb_gym.privacy.noise import SystemGenerator
from dpb_gym.privacy.tape import Tape, external, repeating


def draws(noise: SystemNoise) -> list[np.ndarray]:
    """Return numbers from every method of system noise that draws."""
    return [
        noise.normal(3),
        noise.uniform((2,)),
        noise.gumbel((2,)),
        noise.gaussian(5.0, 4),
        noise.discrete_gaussian(9.0, 2),
        noise.laplace(3.0, 2),
        noise.heads(np.array([[9.0], [70.0]]), 0.5),
        noise.heads(np.array([[9.0], [70.0]]), 0.3),
        noise.stream(2, 4.0).next(),
        noise.spawn().normal(1),
        noise.single(1).normal(1),
    ]


def test_every_draw_of_system_noise_is_repeated_bit_for_bit() -> None:
    pytest.importorskip("opendp", reason="needs the extra [secure]")
    noise = SystemNoise(2)
    noise.use_grid(2.0**-10, 100, 1.0)
    tape = Tape()
    with tape:
        first = draws(noise)
    with Tape(bytes(tape)):
        again = draws(noise)
    other = draws(noise)
    for one, same, new in zip(first, again, other):
        assert one.tobytes() == same.tobytes()
        assert one.shape == new.shape
    assert any(one.tobytes() != new.tobytes() for one, new in zip(first, other))


def test_all_entropy_of_noise_passes_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a tape is repeated nothing asks the operating system or OpenDP."""
    pytest.importorskip("opendp", reason="needs the extra [secure]")
    noise = SystemNoise(2)
    noise.use_grid(2.0**-10, 100, 1.0)
    tape = Tape()
    with tape:
        draws(noise)

    def refuse(*_: object) -> None:
        raise AssertionError("drawn from outside")

    monkeypatch.setattr("dpb_gym.privacy.noise.os.urandom", refuse)
    for law in ("make_gaussian", "make_laplace"):
        monkeypatch.setattr(noise._opendp.m, law, lambda *_, **__: refuse)
    with Tape(bytes(tape)):
        draws(noise)
    with pytest.raises(AssertionError, match="from outside"), Tape():
        draws(noise)


def test_a_tape_that_does_not_fit_is_refused() -> None:
    tape = Tape()
    with tape:
        SystemGenerator().random(3)
    assert len(bytes(tape)) == 24
    with pytest.raises(CheckpointError, match="more numbers"), Tape(bytes(tape)):
        SystemGenerator().random(4)
    with pytest.raises(CheckpointError, match="1 recorded numbers are left"), Tape(bytes(tape)):
        SystemGenerator().random(2)
    with pytest.raises(ValueError, match="mine"), Tape(bytes(tape)):
        raise ValueError("mine")  # and not the rest of the tape


def test_a_tape_ends_with_its_block() -> None:
    with Tape(b""):
        assert repeating()
    with Tape():
        assert not repeating()
    assert not repeating() and external(2, lambda: [1, 2]).tolist() == [1.0, 2.0]
