"""The window. It never imports torch."""
