"""A session: one conversation with its engine, its stream and its trace."""
