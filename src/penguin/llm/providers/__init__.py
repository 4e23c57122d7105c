"""One module a wire protocol: how a history becomes a request body, and a stream becomes messages."""

from __future__ import annotations
