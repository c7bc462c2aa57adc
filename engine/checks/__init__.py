"""Checks that return problems with a job, with field and remedy, without importing torch or Qt."""
