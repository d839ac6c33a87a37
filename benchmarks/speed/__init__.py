"""Time and memory of losses and metrics against peers: `python -m benchmarks.speed`."""
