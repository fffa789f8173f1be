"""Hot loops, compiled by numba on first use.

Submodules import numba, so they are loaded lazily: ``from dpb_gym import kernels`` is cheap,
``kernels.mnl.outcome(...)`` compiles. No kernel uses fast-math or threads, and every kernel
processes replicates one by one, so its results for one replicate do not depend on the others.
`elementary`, `linalg` and `newton` give the same bits on every machine.
"""

from dpb_gym.lazy import submodules

__getattr__ = submodules(__name__)
