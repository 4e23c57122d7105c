"""A session: one conversation with its engine, its stream and its trace."""

from __future__ import annotations

import logging

# Without a handler Python prints warnings to stderr, tracebacks included; whoever embeds us decides about that (K13).
logging.getLogger("penguin").addHandler(logging.NullHandler())
