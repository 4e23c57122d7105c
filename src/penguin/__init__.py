"""Penguin: an agent harness with one loop, one message protocol, a trace, and resume."""

from __future__ import annotations

__all__: list[str] = []
