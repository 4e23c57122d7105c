"""Runs a real small model behind an OpenAI-compatible API; needs the package xllamacpp and a model file.

Usage: ``python local_model_server.py MODEL.gguf PORT``; prints one JSON line when it answers, ends when
its standard input closes. One thread, so that a test machine stays usable: about ten tokens a second.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import xllamacpp  # type: ignore[import-not-found]  # not a dependency: the test is skipped without it


def main(model: str, port: int) -> None:
    params: Any = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel = 8192, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.hostnames, params.port = ["127.0.0.1"], port
    params.use_jinja = True
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"url": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
