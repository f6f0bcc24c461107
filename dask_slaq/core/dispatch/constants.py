"""Numbers that several modules of the dispatch share. They were chosen, not measured."""

#: Maximum number of workers or jobs compared for one choice.
MOST_COMPARED = 16
#: Seconds between two messages of a worker. Less is not worth waiting for: inputs that move within
#: it may be used anywhere, and tasks that take half of it are trivial.
MESSAGE_SECONDS = 0.002
TRIVIAL_SECONDS = MESSAGE_SECONDS / 2
#: Seconds from the end of a task until one that is sent then begins, at most: short tasks wait on a
#: worker until they take as long in total. Jobs of longer tasks would lose their share by that.
ROUND_TRIP_SECONDS = 0.010
#: The same where the scheduler is busy, as it is where tasks take less than `BRIEF_SECONDS`.
BUSY_TRIP_SECONDS, BRIEF_SECONDS = 0.025, 0.005
#: A task with inputs that usually takes less than `SHORT_SECONDS`, and is expected to start within
#: `SOON_SECONDS`, is not held: a round trip would delay it by a part that matters. A thread also
#: stays free for `SHORT_SECONDS` rather than have one worker make all data of a job.
SHORT_SECONDS, SOON_SECONDS = 0.050, 0.100
#: Seconds of its share that a job may lack before it matters: what it is owed at most when it comes
#: back, and by which it is served later while it has root tasks only.
SLACK_SECONDS = 0.25
#: Slots are kept, from tasks that take longer, for a job that is likely to have ready tasks again
#: within this many seconds.
BACK_SECONDS = 0.020
#: Seconds without a new member that complete a gang of unknown size, and that a member may wait.
QUIET_SECONDS, PATIENCE_SECONDS = 0.1, 60.0
#: Bytes up to which the result of a pinned task may be something that cannot be moved.
NOT_DATA_BYTES = 10_000
