"""States of a trial with the changes between them, and what its messages say."""

from __future__ import annotations

from enum import Enum


class TrialState(str, Enum):
    """What a trial does."""

    TRAINS = "training"
    BLOCKED = "blocked"  # trains, but may need a lock that a waiting one holds: others may train
    STALLED = "stalled"  # the same for long
    WAITS = "waiting"  # in its report, without a thread
    LEFT = "left"  # computes, but gave up its thread by itself, as in Dask's `worker_client`
    MIGRATING = "migrating"  # on no worker
    SENT = "sent"  # on its way to a worker
    ENDED = "ended"

    def __init__(self, word: str) -> None:
        self.blocked = word in ("blocked", "stalled")
        self.trains = self.blocked or word == "training"
        self.migrates = word in ("migrating", "sent")
        self.stays = word in ("waiting", "left")  # on its worker, and waits
        self.waits = self.stays or word == "migrating"
        self.ended = word == "ended"


class TrialEvent(str, Enum):
    """What the message of a trial says."""

    REPORTS = "reports"
    WAITS = "waits"  # in its report
    GOES = "goes"  # on after it waited
    LEFT = "left"  # its thread by itself, and computes
    KEEPS = "keeps"  # a state, and does what it did
    PRUNED = "pruned"  # and ends, as if it was stopped
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
