"""Experts that forecast loss curves, and the gating network that combines them."""
