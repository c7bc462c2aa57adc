"""Checks of a job. They return problems, which state a field and a remedy, and import neither torch nor Qt."""
