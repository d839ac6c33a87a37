"""Losses compared on images: settings chosen on validation, then several seeds judged once on the test part."""
