"""A x = b by block Gauss-Seidel, twice at once: seconds as jobs and under plain Dask.

Run it with ``python examples/linear_solver.py``. A Poisson problem on a grid is cut into strips,
one task each: first the even strips, then the odd ones, are solved for given neighbours. After some
sweeps the rate at which the residual falls gives the over-relaxation that accelerates the rest
(Young 1954). A second job solves the same system without. The relative residual is what each job
reports. The policy ``none`` leaves everything to Dask.
"""

from __future__ import annotations

import math
import threading
from time import sleep, time

import numpy as np
from distributed import Client, LocalCluster
from scipy.linalg import cho_factor, cho_solve

import dask_slaq as slaq

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
COLUMNS, ROWS, STRIPS = 16, 3, 8
FIRST = 10  # sweeps that show the rate
TOLERANCE = 1e-4


def strip_matrix() -> np.ndarray:
    """The five-point Laplacian of one strip."""
    row = 2 * np.eye(COLUMNS) - np.eye(COLUMNS, k=1) - np.eye(COLUMNS, k=-1)
    column = 2 * np.eye(ROWS) - np.eye(ROWS, k=1) - np.eye(ROWS, k=-1)
    return np.kron(column, np.eye(COLUMNS)) + np.kron(np.eye(ROWS), row)


def right_side(b: np.ndarray, above: np.ndarray | None, below: np.ndarray | None) -> np.ndarray:
    """What a strip is to equal, given the strips that it touches."""
    b = b.copy()
    if above is not None:
        b[:COLUMNS] += above[-COLUMNS:]
    if below is not None:
        b[-COLUMNS:] += below[:COLUMNS]
    return b


def relax(factor, b, x, above, below, omega):
    """Solve one strip, and go that way and a little further."""
    sleep(0.01)  # as for a larger one
    return x + omega * (cho_solve(factor, right_side(b, above, below)) - x)


def squared_residual(b, x, above, below):
    rest = right_side(b, above, below) - strip_matrix() @ x
    return float(rest @ rest)


def solve(client: Client, name: str, accelerate: bool, said: dict[str, str]) -> None:
    """Solve the system as one job."""
    begin = time()
    random = np.random.default_rng(0)
    b = [random.normal(size=ROWS * COLUMNS) for _ in range(STRIPS)]
    x = [np.zeros_like(part) for part in b]
    norm = math.sqrt(sum(part @ part for part in b))
    residuals, omega = [1.0], 1.0
    with slaq.job(name, client=client) as job:
        factor = client.submit(cho_factor, strip_matrix())
        while residuals[-1] > TOLERANCE:

            def around(i: int) -> tuple:
                return x[i], x[i - 1] if i else None, x[i + 1] if i + 1 < STRIPS else None

            for colour in (0, 1):
                for i in range(colour, STRIPS, 2):
                    x[i] = client.submit(relax, factor, b[i], *around(i), omega, pure=False)
            squares = [
                client.submit(squared_residual, b[i], *around(i), pure=False) for i in range(STRIPS)
            ]
            residuals.append(math.sqrt(sum(client.gather(squares))) / norm)
            job.report(residuals[-1])
            if accelerate and len(residuals) == FIRST:
                omega = 2 / (1 + math.sqrt(1 - residuals[-1] / residuals[-2]))
        answer = np.concatenate(client.gather(x))
    error = np.abs(answer - directly(np.concatenate(b))).max()
    said[name] = (
        f"{name} residual {residuals[-1]:.0e} after {len(residuals) - 1} sweeps and "
        f"{time() - begin:.1f} s, error {error:.0e}"
    )


def directly(b: np.ndarray) -> np.ndarray:
    """The solution of the whole system at once."""
    n = ROWS * COLUMNS
    whole = np.kron(np.eye(STRIPS), strip_matrix())
    for i in range(n, len(b), n):
        j = np.arange(COLUMNS)
        whole[i + j, i - COLUMNS + j] = whole[i - COLUMNS + j, i + j] = -1
    return np.linalg.solve(whole, b)


def main() -> None:
    for policy, way in (("none", "plain Dask"), ("first-to-target", "jobs")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="100ms"))
            said: dict[str, str] = {}
            solvers = [
                threading.Thread(target=solve, args=(client, name, accelerate, said))
                for name, accelerate in (("accelerated", True), ("not", False))
            ]
            for solver in solvers:
                solver.start()
            for solver in solvers:
                solver.join()
            print(f"{way}: {said['accelerated']}; {said['not']}")


if __name__ == "__main__":
    main()
