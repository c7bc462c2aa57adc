"""Tests of Footplate.

They form a package, so that Python doesn't import another package named "tests" instead.
"""
