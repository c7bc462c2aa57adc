"""Predictions for files and folders, written in formats that suit the model's task.

A worker writes the files for each sample and then records the sample in its journal. At the end, the journals are
merged into tables in the order of the samples. If the work is interrupted, it is resumed with the help of the journals.
"""
