"""Findings: measured facts about a run, with advice on settings to change.

`run_end` finds improvements for a finished run, `bottleneck` finds what limits the speed of an active run, and
`ranking` explains why one strategy trains faster than another. All are pure functions of numbers. Each threshold is
defined, with its source, next to the rule that uses it.
"""
