"""Which strategy, how many devices and which settings train a job fastest: chosen by estimates, measured by short
trials.
"""
