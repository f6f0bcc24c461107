"""Memory benchmark: what past runs of like kind are worth."""
