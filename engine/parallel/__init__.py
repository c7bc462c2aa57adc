"""Layout of a job's ranks, and the split of its model into pipeline stages. Pure arithmetic, without torch and Qt."""
