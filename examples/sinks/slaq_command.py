"""Passes alerts of the scheduler to a command, on its standard input and in its environment.

``slaq.notify: {ann: {call: {class: slaq_command.Command, words: [mail, -s, dask, ann]}}}`` where
the scheduler runs, with this file on its ``PYTHONPATH``. No shell is involved.
"""

import json
import os
import subprocess


class Command:
    def __init__(self, words, timeout=10):
        self.words, self.timeout = words, timeout

    def __call__(self, notice):
        fields = ("event", "job", "owner", "message")
        told = {f"SLAQ_{f.upper()}": str(notice.get(f, "")).replace("\0", "") for f in fields}
        subprocess.run(
            self.words,
            input=json.dumps(notice, default=str).encode() + b"\n",
            env={**os.environ, **told},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=self.timeout,
            check=True,
        )
