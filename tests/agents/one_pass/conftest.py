"""Lets the tests of this folder import the plain agents that they compare with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
