"""Request bodies against files, byte for byte.

The files lie in ``tests/golden_bodies/<protocol>/<case>.json``. After a change that is meant, run the module of the
tests (``python -m tests.llm.providers.test_gemini_body``, say), which writes them anew, and read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1] / "golden_bodies"


def check_golden(protocol: str, case: str, body: bytes) -> None:
    """Compare ``body``, which must be JSON, with its file."""
    json.loads(body)
    file = _ROOT / protocol / f"{case}.json"
    assert file.read_bytes() == body + b"\n", f"{case} differs from {file.name}"


def golden_cases(protocol: str) -> set[str]:
    """The cases that have a file."""
    return {file.stem for file in (_ROOT / protocol).glob("*.json")}


def write_golden(protocol: str, cases: Mapping[str, Callable[[], bytes]]) -> None:
    """Write the files of all cases anew."""
    (_ROOT / protocol).mkdir(parents=True, exist_ok=True)
    for case, build in cases.items():
        (_ROOT / protocol / f"{case}.json").write_bytes(build() + b"\n")
