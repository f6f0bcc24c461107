"""Policies of searches, compared in a deterministic simulation that replays grids of loss curves."""
