"""Arguments that models change although others on their worker have the same object."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

from dask.typing import Key
from distributed import Worker

#: Package whose trees count how often they are asked.
COUNTING = b"sklearn.neighbors"


class SharedArguments:
    """Looks at the first three models of each of the last 100 searches on a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._seen: dict[str, dict[Key, dict[Any, int]]] = {}  # by run and key of the task

    def begin(self, run: str, key: Key) -> None:
        """See the arguments of a task that begins."""
        models = self._seen.setdefault(run, {})
        if len(models) < 3 and (found := self._prints(key)):
            models[key] = found
        while len(self._seen) > 100:
            del self._seen[next(iter(self._seen))]

    def find_changed(self, run: str, key: Key, reports: int) -> Any:
        """Return the key of an argument that has changed since the task began, or None.

        An argument is the result of another task, or was scattered. It is looked for ever more
        seldom.
        """
        before = self._seen.get(run, {}).get(key)
        if not before or reports & (reports - 1):
            return None
        after = self._prints(key)
        return next((k for k, found in before.items() if after.get(k, found) != found), None)

    def _prints(self, key: Key) -> dict[Any, int]:
        """Return hashes of the small arguments of a task that other tasks here have, too."""
        found: dict[Any, int] = {}
        with suppress(Exception):  # it ends, its arguments move, or they cannot be pickled
            for ts in list(self._worker.state.tasks[key].dependencies):
                if len(ts.dependents) > 1 and (ts.nbytes or 0) <= 1_000_000:
                    made = pickle.dumps(self._worker.data[ts.key])
                    if COUNTING not in made:
                        found[ts.key] = hash(made)
        return found
