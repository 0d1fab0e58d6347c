"""A server of Tinker's protocol on this machine, backed by the local trainer."""
