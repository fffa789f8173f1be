"""Make `numpy_kernels`, plain NumPy versions of the kernels, importable in this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
