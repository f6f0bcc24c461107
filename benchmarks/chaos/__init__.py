"""Faults of all kinds against the plugin, on the virtual clock and on real processes."""
