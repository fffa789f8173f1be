"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# A test says nothing about time: on a busy machine any example may take long.
settings.register_profile("dpb", deadline=None)
settings.load_profile("dpb")
