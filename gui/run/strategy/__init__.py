"""How the strategy of a run went, rank by rank."""
