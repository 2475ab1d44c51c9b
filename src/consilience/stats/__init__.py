"""Correlations, bootstrap intervals and permutation tests: arrays in, numbers out, randomness from the given rng."""
