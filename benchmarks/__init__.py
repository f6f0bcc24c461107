"""Benchmarks: `python -m benchmarks.NAME`. Every result is a ratio inside one run."""
