"""Hot loops, compiled by numba on first use.

The submodules import numba, so they are loaded only when one of them is first used:
``from dpb_gym import kernels`` costs nothing, ``kernels.mnl.outcome(...)`` compiles.
No kernel uses fast-math or threads, and every kernel handles replicates one by one:
what it computes for one replicate does not depend on the others. `elementary`, `linalg` and
`newton` compute the same bits on every machine.
"""

from dpb_gym.lazy import submodules

__getattr__ = submodules(__name__)
