"""The record of a session: one JSONL file per model context, written as things happen."""

from __future__ import annotations
