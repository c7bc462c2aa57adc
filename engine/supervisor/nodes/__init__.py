"""A run's machines, as its supervisor sees them: reached through ssh, heard, sent what they lack, and ended
together.
"""
