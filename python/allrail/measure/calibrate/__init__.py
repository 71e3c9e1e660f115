"""Inputs made of measurements.

`read/` takes what people have printed, `fit.py` makes times of every size of it, `network.py` a
fabric.
"""
