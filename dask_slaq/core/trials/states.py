"""States of trials, and their colors in plots and on the board."""

#: Color of models by their state, in the order in which they are drawn: the last ones on top.
STATE_COLORS = {
    "ready": "#dddddd",
    "pruned": "#d9b3b3",
    "stopped": "#999999",
    "failed": "#d62728",
    "retried": "#e377c2",
    "waiting": "#ffb347",
    "away": "#b39ddb",
    "done": "#2ca02c",
    "training": "#1f77b4",
    "silent": "#9467bd",
}
