"""The optimizer's step on the parameters that a rank holds."""
