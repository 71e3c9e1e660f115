"""ASTRA-sim's workload files, which a scenario may name as its model."""
