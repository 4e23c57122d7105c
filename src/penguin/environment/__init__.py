"""The workspace of an agent and the tools that act in it."""
