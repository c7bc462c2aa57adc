"""Checks of a job. They return problems, each with a field and a remedy, and import neither torch nor Qt."""
