"""Parts of the papers' methods beside what is used without them, at equal steps."""
