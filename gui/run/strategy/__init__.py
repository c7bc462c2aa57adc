"""Measurements of the parallel strategy per rank."""
