"""Policies of searches, compared in a deterministic replay of grids of loss curves."""
