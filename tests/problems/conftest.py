"""Lets the tests of this folder import `numpy_kernels`, the plain NumPy twins of the kernels."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
