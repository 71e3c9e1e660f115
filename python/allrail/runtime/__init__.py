"""The runtime, as far as it needs no torch."""
