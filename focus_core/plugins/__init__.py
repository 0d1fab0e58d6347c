"""Plug-ins: what they register, how they are found, set and told what happens."""
