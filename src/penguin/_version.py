"""The version, where ``penguin --version`` finds it without reading the installed metadata (60 ms)."""

from __future__ import annotations

VERSION = "0.1.0"
