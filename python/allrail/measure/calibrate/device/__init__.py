"""A device's file made of what PyTorch measures on the device at hand.

    found = run(Bench(torch.device("cpu")), seconds=60)
    fitted = fit(found)

`points.py` is what is measured, `steady.py` how often, `bench.py` and `starts.py` by what calls of
PyTorch, and `clock.py` takes the time; `run.py` goes through the points in rounds, and `fit.py`
makes a file of what comes out. Predictions are the core's
(`crates/workload/src/kernels/single.rs`): what is fitted is what is simulated.
"""
