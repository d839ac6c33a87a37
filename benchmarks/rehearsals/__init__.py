"""Every recipe of the library rehearsed."""
