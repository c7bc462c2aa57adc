"""Checks of a job, which return problems with field and remedy, and import neither torch nor Qt."""
