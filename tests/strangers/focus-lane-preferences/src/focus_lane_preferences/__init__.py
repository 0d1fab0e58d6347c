"""Pairs of sibling continuations, the better one chosen."""
