"""``penguin schema``."""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the message protocol: what a trace line and a line of --json may hold."""
    import json  # noqa: PLC0415 - this command only

    from penguin.protocol.schema import protocol_schema  # noqa: PLC0415 - pulls in every message type

    print(json.dumps(protocol_schema(), indent=2, ensure_ascii=False))
