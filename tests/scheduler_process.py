"""A scheduler with the plugin in a process of its own."""

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_scheduler(folder, *options, **environment):
    """Start a scheduler with the plugin in a process of its own; return it and its address."""
    file = folder / "scheduler.json"
    program = [
        sys.executable,
        "-m",
        "dask",
        "scheduler",
        "--no-dashboard",
        "--preload",
        "dask_slaq",
    ]
    place = ["--host", options[0] if options else "tcp://127.0.0.1", "--port", "0"]
    with open(folder / "scheduler.log", "w") as log:
        process = subprocess.Popen(
            [*program, *place, "--scheduler-file", str(file), *options[1:]],
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )
    for _ in range(1200):
        if file.exists() and file.read_text().strip():
            return process, str(file)
        assert process.poll() is None, (folder / "scheduler.log").read_text()
        time.sleep(0.05)
    raise AssertionError("the scheduler does not start")


def end(process):
    process.terminate()
    process.wait(30)
