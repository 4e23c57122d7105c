"""Damage to streams: cut at any byte, split at any byte, events duplicated, dropped and swapped."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Damaged:
    """A stream after its damage, in the chunks the network delivers it in."""

    chunks: list[bytes]
    reordered: bool
    """Whether events are missing, doubled or out of order; else it is only cut."""


@st.composite
def damaged(draw: st.DrawFn, events: list[bytes], *, most: int = 3) -> Damaged:
    """Up to ``most`` changes of the order of ``events``, then perhaps a cut, then splits anywhere."""
    stream = list(events)
    changes = draw(st.lists(st.sampled_from(["drop", "duplicate", "swap"]), max_size=most))
    for change in changes:
        place = draw(st.integers(0, max(len(stream) - 1, 0)))
        other = draw(st.integers(0, max(len(stream) - 1, 0)))
        match change:
            case "drop":
                del stream[place : place + 1]
            case "duplicate":
                stream[other:other] = stream[place : place + 1]
            case _ if stream:
                stream[place], stream[other] = stream[other], stream[place]
            case _:
                pass
    data = b"".join(stream)
    end = draw(st.just(len(data)) | st.integers(0, len(data)))
    places = [0, *sorted(draw(st.lists(st.integers(0, end), max_size=6))), end]
    return Damaged([data[start:stop] for start, stop in itertools.pairwise(places)], stream != events)
