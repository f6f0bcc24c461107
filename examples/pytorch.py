"""A PyTorch loop on the partitions of a Dask array: as a job it ends with the same loss as without.

Run it with ``python examples/pytorch.py``; it needs ``pip install dask-slaq[torch]``. An iteration
is a task for each partition, which computes loss and gradient there, and one step of the optimizer
here. ``job.report(loss)`` is the one line that the loop needs; under plain Dask it does nothing.
Nothing stays on a worker but rows, so the worker set may change between iterations.
"""

from __future__ import annotations

import io

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

try:
    import torch
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: pip install 'dask-slaq[torch]'") from None

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
ROWS, COLUMNS, CHUNKS, ITERATIONS = 2_000, 4, 4, 30


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(COLUMNS, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )


def gradient(state: bytes, x: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Loss and gradient over one partition, as sums over its rows."""
    model = network()
    model.load_state_dict(torch.load(io.BytesIO(state)))
    output = model(torch.as_tensor(x, dtype=torch.float32))[:, 0]
    loss = torch.nn.functional.mse_loss(
        output, torch.as_tensor(y, dtype=torch.float32), reduction="sum"
    )
    loss.backward()
    return float(loss.detach()), [p.grad.numpy() for p in model.parameters()]


def saved(model: torch.nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return buffer.getvalue()


def train(client: Client, X: da.Array, y: da.Array) -> list[float]:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    parts = list(zip(X.to_delayed()[:, 0], y.to_delayed(), strict=True))
    rows = [[client.compute(block) for block in part] for part in parts]
    losses = []
    with slaq.job("network", client=client) as job:
        for _ in range(ITERATIONS):
            state = saved(model)
            tasks = [client.submit(gradient, state, *part, pure=False) for part in rows]
            results = client.gather(tasks)
            losses.append(sum(loss for loss, _ in results) / ROWS)
            job.report(losses[-1])
            sums = zip(*(gradients for _, gradients in results), strict=True)
            for parameter, parts_of in zip(model.parameters(), sums, strict=True):
                parameter.grad = torch.as_tensor(sum(parts_of) / ROWS)
            optimizer.step()
    return losses


def main() -> None:
    for policy, way in (("none", "plain Dask"), ("first-to-target", "job")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="200ms"))
            rng = da.random.default_rng(0)
            X = rng.standard_normal((ROWS, COLUMNS), chunks=(ROWS // CHUNKS, COLUMNS)).persist()
            y = (X[:, 0] * X[:, 1]).persist()
            wait([X, y])
            losses = train(client, X, y)
            seen = int(slaq.history(client).iteration.max())
            print(f"{way}: loss {losses[0]:.2f} to {losses[-1]:.2f}, seen with {seen} reports")


if __name__ == "__main__":
    main()
