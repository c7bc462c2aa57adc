"""Checks that return problems of a job, with field and remedy, without importing torch or Qt."""
