"""Fault injection for the plugin, on the virtual clock and on real processes."""
