"""Footplate's Qt window. It never imports torch."""
