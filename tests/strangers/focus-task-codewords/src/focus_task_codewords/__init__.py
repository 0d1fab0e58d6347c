"""Guess a secret word; the answer to a guess says how many letters are right."""
