"""dp_accounting's accountants and jax_privacy's matrices against ours."""

import dp_accounting
import numpy as np
from dp_accounting import pld, rdp
from rows import attempt, difference

from dpb_gym.privacy import accounting, events
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.releasers import correlated_noise

SIGMAS, TIMES, DELTA = (0.8, 2.0, 7.0), (1, 20, 300), 1e-6


def composed(accountant, event_of):
    """Epsilons of compositions by one of dp_accounting's accountants."""
    epsilons = []
    for sigma in SIGMAS:
        for times in TIMES:
            own = accountant()
            own.compose(event_of(sigma), times)
            epsilons.append(own.get_epsilon(DELTA))
    return np.array(epsilons)


def ours(event_of):
    return np.array(
        [
            accounting.epsilon(Composition((event_of(sigma),) * times), DELTA)
            for sigma in SIGMAS
            for times in TIMES
        ]
    )


def gaussian():
    theirs = composed(pld.PLDAccountant, dp_accounting.GaussianDpEvent)
    mine = ours(lambda sigma: events.GaussianEvent(sigma, 1.0))
    gap = np.max(np.abs(theirs / mine - 1))
    assert gap < 1e-3 and (mine <= theirs * (1 + 1e-9)).all(), f"gap {gap:.2g}"
    return f"9 compositions, exact here, at most {gap:.1g} above by PLDAccountant"


def renyi():
    theirs = composed(rdp.RdpAccountant, dp_accounting.GaussianDpEvent)
    mine = ours(lambda sigma: events.GaussianEvent(sigma, 1.0))
    assert (mine <= theirs * (1 + 1e-9)).all()
    return f"9 compositions, never above; RdpAccountant up to {np.max(theirs / mine) - 1:.0%} more"


def laplace():
    theirs = composed(pld.PLDAccountant, dp_accounting.LaplaceDpEvent)
    mine = ours(lambda scale: events.LaplaceEvent(scale, 1.0))
    assert (mine <= theirs * 1.001).all() and (mine >= theirs * 0.98).all()
    return f"9 compositions, ratio {np.min(mine / theirs):.4f} to {np.max(mine / theirs):.4f}"


def toeplitz():
    import jax
    from jax_privacy.matrix_factorization import toeplitz as theirs

    jax.config.update("jax_enable_x64", True)
    n = 200
    mine = correlated_noise.make_mechanism("sqrt-toeplitz", n)
    said = difference(
        correlated_noise.square_root_coefficients(n), theirs.optimal_max_error_strategy_coefs(n)
    )
    gain = float(theirs.sensitivity_squared(theirs.optimal_max_error_strategy_coefs(n))) ** 0.5
    difference(mine.gain, gain)
    errors = theirs.per_query_error(strategy_coef=theirs.optimal_max_error_strategy_coefs(n))
    difference(mine.variances(n), errors)
    return f"coefficients, sensitivity and variances of 200 steps; {said}"


def buffered():
    import jax
    from jax_privacy.matrix_factorization import buffered_toeplitz as theirs

    jax.config.update("jax_enable_x64", True)
    n = 200
    theta, omega = correlated_noise.blt_parameters(n)
    blt = theirs.BufferedToeplitz.build(buf_decay=theta, output_scale=omega)
    coefs = np.asarray(blt.toeplitz_coefs(n))
    mine = correlated_noise.BufferedToeplitz(n)
    inverse = np.asarray(blt.inverse().toeplitz_coefs(n))
    said = difference(np.cumsum(inverse), mine.column(n))
    difference(np.sqrt((coefs**2).sum()), mine.gain)
    return f"noise and sensitivity of 200 steps; {said}"


attempt("dp_accounting PLDAccountant", "Gaussian compositions", gaussian)
attempt("dp_accounting RdpAccountant", "Gaussian compositions", renyi)
attempt("dp_accounting PLDAccountant", "Laplace compositions", laplace)
attempt("jax_privacy toeplitz", "the square-root mechanism", toeplitz)
attempt("jax_privacy buffered_toeplitz", "the 'blt' mechanism", buffered)
