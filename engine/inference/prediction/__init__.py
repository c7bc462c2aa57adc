"""Predictions for files and folders, written in the formats of the model's task.

A worker writes the files of each sample and then records the sample in its journal. At the end, the journals are merged
into tables in the order of the samples. Interrupted work resumes from the journals.
"""
