"""What losses would do on an accelerator, counted without one."""
