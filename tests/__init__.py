"""Footplate's tests; a package, so that no other of this name on the path takes its place."""
