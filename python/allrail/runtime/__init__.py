"""Real processes: how they find each other, and what runs a plan among them. Needs no torch."""
