"""How long tests wait for other processes."""

# Seconds: at least ten times what any of them takes on a quiet machine, since a busy machine is no failure.
PATIENCE = 900
