"""Cost of training over several processes."""
