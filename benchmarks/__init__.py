"""How fast and how good, against other libraries. Not part of the installed package."""
