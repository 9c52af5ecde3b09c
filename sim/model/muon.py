"""Muon: the products that orthogonalise the momentum of a hidden matrix."""

from collections.abc import Iterator

from sim.model.kernels import Gemm, Kernel
from sim.model.operators import Matrix

# Coefficients and number of iterations: Jordan et al. 2024 (Muon), five in bf16.
_ITERATIONS = 5


def orthogonalised(matrix: Matrix) -> Iterator[Kernel]:
    """Yield the products of Newton-Schulz: A = X X', B = b A + c A A, X = a X + B X, in bf16, where
    X is no taller than wide. The products include the additions (Jordan et al. 2024)."""
    short, long = sorted((matrix.rows, matrix.columns))
    products = ((short, long), (short, short), (long, short))
    for _ in range(_ITERATIONS):
        for n, k in products:
            yield Gemm(name="newton-schulz", m=short, n=n, k=k, batch=matrix.number)
