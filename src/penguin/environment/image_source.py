"""Where an image comes from: a path in the workspace or a URL (N17)."""

from __future__ import annotations

import anyio

from penguin.environment.fetch import FetchError, fetch
from penguin.environment.file_paths import FilePlace, find_place, not_found, stat_regular
from penguin.environment.images import LARGEST_FILE, PreparedImage, UnusableImage, prepare_image
from penguin.environment.resolved_open import read_resolved
from penguin.environment.tool import NetworkConfinement, ToolError, ToolSetup


async def load_image(source: str, setup: ToolSetup) -> PreparedImage:
    """Read or fetch, then make it fit.

    Raises:
        ToolError: it cannot be had or is no image; the text says why.
    """
    if source[:5].lower() == "data:":
        raise ToolError("A data: address is not read; save the image to a file and give its path.")
    data = await _fetched(source, setup) if "://" in source else await _read(source, setup)
    try:
        return await anyio.to_thread.run_sync(prepare_image, data)
    except UnusableImage as error:
        raise ToolError(f"{source} cannot be shown: {error}.") from None


async def _fetched(url: str, setup: ToolSetup) -> bytes:
    confinement: object = setup.confinement
    if isinstance(confinement, NetworkConfinement) and (refusal := confinement.network_refusal()):
        raise ToolError(f"{url} was not fetched: {refusal}.")
    try:
        return await anyio.to_thread.run_sync(fetch, url, None, setup.allowed_hosts, abandon_on_cancel=True)
    except FetchError as error:
        raise ToolError(f"{url} was not fetched: {error}.") from None


async def _read(source: str, setup: ToolSetup) -> bytes:
    place = find_place(setup, source, writing=False)
    return await anyio.to_thread.run_sync(_content, place)


def _content(place: FilePlace) -> bytes:
    status = stat_regular(place)
    if status is None:
        raise not_found(place)
    if status.st_size > LARGEST_FILE:
        raise ToolError(f"{place.shown} has {status.st_size} bytes; an image file may have {LARGEST_FILE}.")
    with place.told():
        return read_resolved(place.real)
