"""Predictions for files and folders, written in the formats of the model's task.

Workers write the files of each sample, then record it in their journal. At the end, the journals are merged into
tables in the order of the samples. Interrupted work is continued from the journals.
"""
