"""The steps of a run as a CSV table."""
