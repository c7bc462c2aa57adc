"""Tests of Footplate. They form a package, so that no other package called "tests" on the path is imported instead."""
