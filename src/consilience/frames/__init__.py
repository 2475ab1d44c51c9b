"""Coordinate systems: sufficient statistics, maps between frames, their fit reports and identities.

Pure array functions in fp64. Row vectors: ``x @ matrix``. Nothing here reads files or keeps random state.
"""
