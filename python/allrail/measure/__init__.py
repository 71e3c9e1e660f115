"""Measurements: fabrics and devices from them, predictions beside them."""
