"""Making an image fit for a model: known type, bounded size, told by its content (L14, N17)."""

from __future__ import annotations

import base64
import binascii
import io
import threading
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFile import ImageFile

LONGEST_SIDE: Final = 2_000
LARGEST_BASE64: Final = 5 * 1024 * 1024
LARGEST_FILE: Final = 50 * 1024 * 1024
"""Bytes of an image before it is scaled."""
MOST_PIXELS: Final = 50_000_000
"""Pixels that are decoded at once, at up to 8 bytes each; a screenshot in 8K has 33 million.

How large the file is says nothing: 600 kB of PNG can unfold to gigabytes.
"""
_MOST_PIXELS_WEBP: Final = MOST_PIXELS // 2  # its decoder holds the canvas more than once
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
# Phones write photos with a second picture behind the first, a plain JPEG to everybody else.
_TYPES: Final = {f: f"image/{f.lower()}" for f in _FORMATS} | {"MPO": "image/jpeg"}
_KILO: Final = 1024
_QUALITIES: Final = (85, 70, 50)
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_FRAME: Final = 12  # bytes of a part beside its content: length, name, checksum
# Markers of JPEG (T.81, table B.1).
_FILLER: Final = 0xFF
_START_OF_SCAN: Final = 0xDA
_FRAME_HEADER: Final = 10  # bytes up to the number of components
_SEQUENTIAL: Final = frozenset({0xC0, 0xC1})
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # the others are tables

_one_large_image = threading.Lock()


class UnusableImage(Exception):
    """The bytes are no image a model can be shown; the text says why."""


class FittedUrl(str):
    """A ``data:`` URL whose image went through :func:`prepare_image`; it need not go through it again.

    Only inside the environment: a message takes plain text (``str(url)``), the encoder knows nothing else.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image as it enters the conversation.

    ``note`` describes it in one line, what was changed included.
    """

    mime_type: str
    data: bytes
    note: str
    is_scaled: bool = False

    @property
    def data_url(self) -> FittedUrl:
        """``data:<mime>;base64,…``."""
        return FittedUrl(f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode('ascii')}")


def prepare_image(data: bytes) -> PreparedImage:
    """Check and, if it must be, scale an image to 2,000 pixels and 5 MB of base64.

    Done once, on entry, before the trace, so that what is stored is what is sent. Takes up to a second
    for large images: call it in a worker thread. Memory stays under half a gigabyte whatever the image
    claims, also when many threads call at once: large images wait for each other.

    Raises:
        UnusableImage: not png, jpeg, gif or webp, damaged, or absurdly large.

    Example::

        image = prepare_image(Path("photo.jpg").read_bytes())
        image.note  # "image/jpeg, 2000x1500, 412 kB (scaled from 4000x3000, 6.1 MB)"
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - a sixth of a second at start-up

    if len(data) > LARGEST_FILE:
        raise UnusableImage(f"it has {_size(len(data))}; an image may have {_size(LARGEST_FILE)}")
    # Pillow warns of what we judge ourselves, on the user's stderr. Named each time: whoever resets the filters
    # (a test runner does) would bring the warning back.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    data = _without_damaged_extras(data)
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            _refuse_bomb(image, data)
            if max(image.size) <= LONGEST_SIDE:
                image.load()
                return _fitted(image, data)
            with _one_large_image:
                return _fitted(image, data)
    except UnidentifiedImageError:
        raise UnusableImage("this is not an image of a known type (png, jpeg, gif, webp), by its content") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnusableImage(f"the image is damaged or too large to be opened: {error}") from None


def _without_damaged_extras(data: bytes) -> bytes:
    """A PNG without the optional parts whose checksum is wrong: others show it, Pillow would not open it."""
    if not data.startswith(_PNG):
        return data
    parts, position = [_PNG], len(_PNG)
    while position + _PNG_FRAME <= len(data):
        end = position + _PNG_FRAME + int.from_bytes(data[position : position + 4], "big")
        named, checksum = data[position + 4 : end - 4], data[end - 4 : end]
        is_optional = bool(named[0] & 0x20)
        if not is_optional or zlib.crc32(named).to_bytes(4, "big") == checksum:
            parts.append(data[position:end])
        position = end
    mended = b"".join(parts) + data[position:]
    return data if len(mended) == len(data) else mended


def prepare_encoded(text: str) -> PreparedImage:
    """The same for an image in base64.

    Raises:
        UnusableImage: as :func:`prepare_image`, or the text is not base64.
    """
    if len(text) > LARGEST_FILE // 3 * 4 + 4:  # before a copy of it is made
        raise UnusableImage(f"it has {_size(len(text))} of base64; an image may have {_size(LARGEST_FILE)}")
    try:
        return prepare_image(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UnusableImage(f"its data is damaged: {error}") from None


def prepare_urls(urls: Sequence[str]) -> tuple[list[str], list[str]]:
    """Images of a tool, ``data:`` URLs, as they may enter the conversation, and what is to be said of them.

    One that no model can be shown is left out, and said: inside the history it would fail every later request.
    """
    fitted: list[str] = []
    remarks: list[str] = []
    for url in urls:
        if isinstance(url, FittedUrl) or not url.startswith("data:"):
            fitted.append(str(url))
            continue
        try:
            image = prepare_encoded(url.partition(",")[2])
        except UnusableImage as error:
            remarks.append(f"[an image was left out: {error}]")
            continue
        fitted.append(str(image.data_url))
        if image.is_scaled:
            remarks.append(f"[{image.note}]")
    return fitted, remarks


def _refuse_bomb(image: ImageFile, data: bytes) -> None:
    """Judge by the header, before a pixel is decoded; Pillow's own limit is hard at 179 million pixels only."""
    most = _MOST_PIXELS_WEBP if image.format == "WEBP" else MOST_PIXELS
    if image.width * image.height > most and not (image.format in {"JPEG", "MPO"} and _decodes_in_rows(data)):
        raise UnusableImage(
            f"{image.width}x{image.height} are too many pixels; at most {most // 1_000_000} million are opened."
            " Have it scaled down with a command first"
        )


def _decodes_in_rows(jpeg: bytes) -> bool:
    """Whether one pass over the data gives finished rows, so that the decoder can shrink them as they come.

    A progressive JPEG, or one with a pass for each colour, is held in memory at its full size however small the
    result is to be.
    """
    position, components = 2, 0
    while position + _FRAME_HEADER < len(jpeg) and jpeg[position] == _FILLER:
        marker = jpeg[position + 1]
        if marker == _FILLER:
            position += 1
            continue
        if marker in _FRAMES:
            components = jpeg[position + _FRAME_HEADER - 1]
            if marker not in _SEQUENTIAL:
                return False
        if marker == _START_OF_SCAN:
            return components == jpeg[position + 4]
        position += 2 + int.from_bytes(jpeg[position + 2 : position + 4], "big")
    return False


def _fitted(image: ImageFile, data: bytes) -> PreparedImage:
    mime_type = _TYPES[image.format or ""]
    was = f"{image.width}x{image.height}, {_size(len(data))}"
    if max(image.size) <= LONGEST_SIDE and _base64_length(data) <= LARGEST_BASE64:
        return PreparedImage(mime_type, data, f"{mime_type}, {was}")
    smaller = _scaled(image)
    mime_type, data = _encoded(smaller, mime_type)
    now = f"{smaller.width}x{smaller.height}, {_size(len(data))}"
    return PreparedImage(mime_type, data, f"{mime_type}, {now} (scaled from {was})", is_scaled=True)


def _scaled(image: ImageFile) -> Image.Image:
    """Smaller, then upright: turned first, the image would be there twice at its full size."""
    from PIL import ImageOps  # noqa: PLC0415 - see prepare_image

    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))  # decodes; a JPEG only as finely as it needs
    ImageOps.exif_transpose(image, in_place=True)
    return image


def _encoded(image: Image.Image, mime_type: str) -> tuple[str, bytes]:
    """In its own type if that is small enough, else as ever stronger compressed jpeg."""
    if mime_type in {"image/png", "image/gif"}:
        as_png = _saved(image, "PNG")  # `optimize` takes three times as long, and the result is hardly smaller
        if _base64_length(as_png) <= LARGEST_BASE64:
            return "image/png", as_png
    flat = _without_transparency(image)
    for quality in _QUALITIES:
        as_jpeg = _saved(flat, "JPEG", quality=quality)
        if _base64_length(as_jpeg) <= LARGEST_BASE64:
            return "image/jpeg", as_jpeg
    raise UnusableImage("it stays too large however it is compressed")


def _without_transparency(image: Image.Image) -> Image.Image:
    from PIL import Image  # noqa: PLC0415 - see prepare_image

    if image.mode in {"RGB", "L"}:
        return image
    layered = image.convert("RGBA")
    white = Image.new("RGB", layered.size, (255, 255, 255))
    white.paste(layered, mask=layered.getchannel("A"))
    return white


def _saved(image: Image.Image, format: str, **options: int | bool) -> bytes:  # noqa: A002 - Pillow's word
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def _base64_length(data: bytes) -> int:
    return -(-len(data) // 3) * 4


def _size(count: int) -> str:
    if count < _KILO:
        return f"{count} B"
    return f"{count / _KILO:.0f} kB" if count < _KILO**2 else f"{count / _KILO**2:.1f} MB"
