"""States of a trial with the changes between them, and what its messages say."""

from __future__ import annotations

from enum import Enum


class TrialState(str, Enum):
    """What a trial does."""

    TRAINS = "training"
    BLOCKED = "blocked"  # trains, but may need a lock that a waiting one holds: others may train
    STALLED = "stalled"  # the same for long
    WAITS = "waiting"  # in its report, without a thread
    LEFT = "left"  # computes without a thread of the pool, as in Dask's `worker_client`
    MIGRATING = "migrating"  # on no worker
    SENT = "sent"  # on its way to a worker
    ENDED = "ended"

    def __init__(self, word: str) -> None:
        self.blocked = word in ("blocked", "stalled")
        self.trains = self.blocked or word == "training"
        self.migrates = word in ("migrating", "sent")
        self.stays = word in ("waiting", "left")  # on its worker, without a thread of the pool
        self.waits = self.stays or word == "migrating"
        self.ended = word == "ended"


class TrialEvent(str, Enum):
    """What the message of a trial says."""

    REPORTS = "reports"
    WAITS = "waits"  # it waits in its report
    GOES = "goes"  # it goes on, after it waited
    LEFT = "left"  # it gave up its thread, and computes
    KEEPS = "keeps"  # it has kept a state, and does what it did
    PRUNED = "pruned"  # it ends without hope; `STOPPED`, with its search
    STOPPED = "stopped"


TRAINS, BLOCKED, STALLED, WAITS, LEFT, MIGRATING, SENT, ENDED = TrialState

#: Changes of state that are allowed; every state may stay as it is.
CHANGES: dict[TrialState, set[TrialState]] = {
    TRAINS: {BLOCKED, STALLED, WAITS, LEFT, MIGRATING, ENDED},
    BLOCKED: {TRAINS, STALLED, WAITS, LEFT, MIGRATING, ENDED},
    STALLED: {TRAINS, BLOCKED, LEFT, MIGRATING, ENDED},
    WAITS: {TRAINS, LEFT, MIGRATING, ENDED},
    LEFT: {TRAINS, WAITS, MIGRATING, ENDED},
    MIGRATING: {TRAINS, SENT, ENDED},
    SENT: {TRAINS, MIGRATING, ENDED},
    ENDED: set(),
}
