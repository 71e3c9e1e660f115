"""Searches over simulations: layouts, requirements, tuning, sweeps."""
