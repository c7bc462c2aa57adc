"""Predictions of a trained model for files and folders, written in the formats of its task.

Workers write what belongs to one sample into files of its own, then tell of it in a line of their journal; when all
are done, the lines are joined into tables in the order of the samples. What was ended midway is continued by the
journals.
"""
