"""Benchmarks, run as `python -m benchmarks.NAME`. Results are ratios within one run."""
