"""The model side: history, transport, provider adapters, and how a request ended."""

from __future__ import annotations
