"""The simulator's functions: one scenario, many, variants, what-ifs, placement, plugins."""
