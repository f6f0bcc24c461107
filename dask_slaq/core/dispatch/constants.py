"""Numbers of the dispatch that were chosen, not measured, and are no settings."""

#: Maximum number of workers or jobs compared for one choice.
LOOKED_AT = 16
#: Seconds between two messages of a worker. Less is not worth waiting for: inputs that move within
#: it may be used anywhere, and tasks that take half of it are trivial.
BETWEEN_MESSAGES = 0.002
#: Seconds from the end of a task until one that is sent then begins, at most: short tasks wait on a
#: worker until they take as long in total. Jobs of longer tasks would lose their share by that.
ROUND_TRIP = 0.010
#: The same where the scheduler is busy, as it is where tasks take less than `BRIEF` seconds.
BUSY_TRIP, BRIEF = 0.025, 0.005
#: Seconds below which tasks are trivial, and weight of the newest task in the running mean of
#: compute times, as in Dask.
TRIVIAL, NEWEST = BETWEEN_MESSAGES / 2, 0.5
#: Seconds. A task with inputs that usually takes less than `SHORT`, and is expected to start within
#: `SOON`, is not held: a round trip would delay it by a part that matters. A thread also stays free
#: for `SHORT` rather than have one worker make all data of a job.
SHORT, SOON = 0.050, 0.100
#: Seconds after which a job is served that has used up its tokens: at 0 it has none yet.
MOMENT = 1e-4
#: Threads that do not count.
EPSILON = 1e-9
#: Seconds of its share that a job may lack before it matters: what it is owed at most when it comes
#: back, and by which it is served later while it has root tasks only.
SLACK = 0.25

#: Slots are kept, from tasks that take longer, for a job that is likely to have ready tasks again
#: within `BACK_WITHIN` seconds, and whose index is `WORTH` times as high. The number of tasks that
#: it is expected to have at once shrinks by the factor `NARROWER` with each gap.
BACK_WITHIN, WORTH, NARROWER = 0.020, 4.0, 0.7

#: Seconds after which tasks outside of pools take the slots of a label that pools could have taken.
AFTER_JOBS = 0.020
#: Minimum number of seconds for which tasks are still held after all other jobs have ended.
LINGER = 10.0

#: Seconds without a new member that complete a gang of unknown size, and that a member may wait.
QUIET, PATIENCE = 0.1, 60.0
#: Bytes up to which the result of a pinned task may be something that cannot be moved.
NOT_DATA = 10_000
