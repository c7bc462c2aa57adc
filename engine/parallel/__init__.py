"""How a job's ranks are laid out and its model is cut: pure arithmetic. Neither torch nor Qt."""
