"""Owners and teams: their settings, shares, budgets, reservations and usage."""
