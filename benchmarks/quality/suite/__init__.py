"""Many data sets of one kind, the practitioner's choices beside ours: one command, each result cached."""
