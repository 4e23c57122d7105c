"""What several test directories share."""

from __future__ import annotations
