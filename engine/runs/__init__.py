"""A run's folder and life, as anyone may see them: the window, the terminal and its supervisor. Neither torch nor
Qt.
"""
