"""Footplate's place in the user's desktop: the entry among the applications, its icons, and the type of job files."""
