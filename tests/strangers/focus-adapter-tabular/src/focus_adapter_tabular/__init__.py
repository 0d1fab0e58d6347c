"""A softmax over a table of prefixes, trained exactly, without torch."""
