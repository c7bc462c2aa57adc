"""Layout of a job's ranks, and cut of its model into stages. It is pure arithmetic, without torch and Qt."""
