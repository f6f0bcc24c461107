"""``python -m benchmarks.curves``: train models and keep their loss curves.

By default it makes the file that the other benchmarks use: curves of the nine algorithms of the
paper's Table 1 on small data and on data of the shape of Table 1's, and of networks.
"""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from benchmarks.common.results import say
from benchmarks.curves.generate import SHIPPED, plan, train


@click.command(help=__doc__)
@click.option(
    "--out", default=str(SHIPPED), help="JSON lines, compressed if it ends in .gz; by default ours."
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of data, hyper-parameters and batches."
)
@click.option("--count", default=108, show_default=True, type=click.IntRange(0), help="Small ones.")
@click.option("--wide", default=27, show_default=True, type=click.IntRange(0), help="Wide ones.")
@click.option("--networks", default=24, show_default=True, type=click.IntRange(0))
@click.option("--quick", is_flag=True, help="One curve per algorithm, and no wide ones.")
def main(out: str, seed: int, count: int, wide: int, networks: int, quick: bool) -> None:
    """Train models, and write their loss curves."""
    made = plan(9, 0, 4) if quick else plan(count, wide, networks)
    lines = []
    with ProcessPoolExecutor() as pool:
        found = [pool.submit(train, name, k, seed, wide=is_wide) for name, k, is_wide in made]
        for line in (each.result() for each in found):
            line["loss"] = [float(f"{loss:.6g}") for loss in line["loss"]]
            lines.append(json.dumps(line))
            say(f"{line['id']}: {len(line['loss'])} iterations")
    data = "".join(f"{line}\n" for line in lines).encode()
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


if __name__ == "__main__":
    main()
