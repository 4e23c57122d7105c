"""The composition root: an agent is configuration and files that make sessions."""
