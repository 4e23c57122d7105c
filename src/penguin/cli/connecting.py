"""The command that connects a model which a server lists, for ``doctor`` and ``config model detect``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from penguin.llm.model_lists import holds_conversations


def model_to_offer(models: Sequence[str]) -> tuple[str | None, str]:
    r"""The first of ``models`` that can be talked to, and in words why it is not simply the first; empty when it is.

    The names are a stranger's. One with a character that cannot be printed is passed over: quoting keeps a shell
    from acting on it, but not the terminal, and a name with the character replaced would be another model's.

    Example::

        model_to_offer(["text-embedding-x", "qwen3-8b"])  # ("qwen3-8b", "")
        model_to_offer(["evil\x1b[2J"])  # (None, "the name of 1 model cannot be printed as given, …")
    """
    printable = [name for name in models if name.isprintable()]
    remarks = []
    if strange := len(models) - len(printable):
        names = "the name of 1 model" if strange == 1 else f"the names of {strange} models"
        remarks.append(f"{names} cannot be printed as given, so no command is offered for that")
    offered = next((name for name in printable if holds_conversations(name)), None)
    if offered is None and printable:
        remarks.append("by their names the models are for embeddings or speech, not for conversations")
    return offered, "; ".join(remarks)


def command_to_connect(
    provider: str,
    model: str | None,
    *,
    client_type: str | None = None,
    base_url: str | None = None,
    api_key: bool = False,
) -> str:
    """The command line, every word quoted for a POSIX shell; ``MODEL`` and ``KEY`` stand for what is to be filled in.

    Example::

        command_to_connect("ollama", "m; touch x")
        # "penguin config model add --provider ollama --model-id 'm; touch x' --set-default"
    """
    words = ["penguin", "config", "model", "add", "--provider", provider, "--model-id", model or "MODEL"]
    words += ["--client-type", client_type] if client_type else []
    words += ["--base-url", base_url] if base_url else []
    words += ["--api-key", "KEY"] if api_key else []
    return shlex.join([*words, "--set-default"])
