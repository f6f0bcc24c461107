"""Owners on the scheduler: who clients are, and what they have used."""
