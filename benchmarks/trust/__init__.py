"""The promises under abuse: faults in training, long runs, rounding over a million updates. See docs/trust.md."""
