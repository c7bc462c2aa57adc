"""Plots of lines over one another, and what is drawn across and beside them."""
