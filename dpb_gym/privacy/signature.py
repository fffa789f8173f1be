"""Ed25519 signatures by the library ``cryptography`` (extra ``[sign]``)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from dpb_gym.errors import ParameterError, optional_module
from dpb_gym.files import read_regular

MOST_BYTES = 2**16
CREATE = "create one with: openssl genpkey -algorithm ed25519 -out key.pem"


def sign(message: bytes, key: str | os.PathLike[str]) -> dict[str, str]:
    """Return the signature of a message, with its public key, as plain JSON values.

    Args:
        message: The message.
        key: PEM file of a private Ed25519 key without a password.

    Raises:
        ParameterError: If the file is no such key.
        MissingExtraError: If ``cryptography`` is not installed.
    """
    private = _read(key, "load_pem_private_key", "Ed25519PrivateKey", password=None)
    public = private.public_key().public_bytes_raw().hex()
    return {"algorithm": "ed25519", "public_key": public, "value": private.sign(message).hex()}


def is_valid(message: bytes, signature: dict[str, str]) -> bool:
    """Return whether a signature belongs to a message and its public key.

    Raises:
        MissingExtraError: If ``cryptography`` is not installed.
    """
    # imported on use, as the extra is optional
    invalid = _library("exceptions").InvalidSignature
    keys = _library("hazmat.primitives.asymmetric.ed25519")
    try:
        public = keys.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        public.verify(bytes.fromhex(signature["value"]), message)
    except (invalid, ValueError):
        return False
    return True


def fingerprint(public_key: str) -> str:
    """Return the SHA-256 of a public key's DER form, as hexadecimal text.

    It equals ``openssl pkey -pubin -in public.pem -outform der | sha256sum``.

    Args:
        public_key: The 32 bytes of the key, as hexadecimal text.
    """
    # RFC 8410: every Ed25519 key has this DER prefix.
    return hashlib.sha256(bytes.fromhex(f"302a300506032b6570032100{public_key}")).hexdigest()


def public_key(path: str | os.PathLike[str]) -> str:
    """Return the public key in a PEM file, as hexadecimal text.

    Raises:
        ParameterError: If the file is no public Ed25519 key.
        MissingExtraError: If ``cryptography`` is not installed.
    """
    key = _read(path, "load_pem_public_key", "Ed25519PublicKey")
    return str(key.public_bytes_raw().hex())


def _read(path: str | os.PathLike[str], load: str, kind: str, **options: Any) -> Any:
    """Return the key in a PEM file."""
    serialization = _library("hazmat.primitives.serialization")
    keys = _library("hazmat.primitives.asymmetric.ed25519")
    unsupported = _library("exceptions").UnsupportedAlgorithm
    side = "private" if kind == "Ed25519PrivateKey" else "public"
    wanted = f"{path} is no {side} Ed25519 key in PEM form without a password"
    try:
        key = getattr(serialization, load)(read_regular(Path(path), MOST_BYTES), **options)
    except (OSError, ValueError, TypeError, unsupported) as error:
        raise ParameterError(f"{wanted}: {error}; {CREATE}") from None
    if not isinstance(key, getattr(keys, kind)):
        raise ParameterError(f"{wanted}, but a {type(key).__name__}; {CREATE}")
    return key


def _library(module: str) -> Any:
    return optional_module(f"cryptography.{module}", "a signature", "sign")
