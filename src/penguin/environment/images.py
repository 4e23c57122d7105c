"""Making an image fit for a model: known type, bounded size, told by its content (L14, N17)."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL import Image

LONGEST_SIDE: Final = 2_000
LARGEST_BASE64: Final = 5 * 1024 * 1024
_TYPES: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_KILO: Final = 1024
_QUALITIES: Final = (85, 70, 50)


class UnusableImage(Exception):
    """The bytes are no image a model can be shown; the text says why."""


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image as it enters the conversation.

    ``note`` describes it in one line, what was changed included.
    """

    mime_type: str
    data: bytes
    note: str

    @property
    def data_url(self) -> str:
        """``data:<mime>;base64,…``."""
        return f"data:{self.mime_type};base64,{base64.b64encode(self.data).decode('ascii')}"


def prepare_image(data: bytes) -> PreparedImage:
    """Check and, if it must be, scale an image to 2,000 pixels and 5 MB of base64.

    Done once, on entry, before the trace, so that what is stored is what is sent. Takes up to a second
    for large images: call it in a worker thread.

    Raises:
        UnusableImage: not png, jpeg, gif or webp, damaged, or absurdly large.

    Example::

        image = prepare_image(Path("photo.jpg").read_bytes())
        image.note  # "image/jpeg, 2000x1500, 412 kB (scaled from 4000x3000, 6.1 MB)"
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - a sixth of a second at start-up

    try:
        with Image.open(io.BytesIO(data)) as image:
            mime_type = _TYPES.get(image.format or "")
            if mime_type is None:
                raise UnusableImage(f"{image.format or 'this type'} is not supported: png, jpeg, gif or webp")
            image.load()
            return _fitted(image, mime_type, data)
    except UnidentifiedImageError:
        raise UnusableImage("this is not an image, judged by its content") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnusableImage(f"the image is damaged or too large to be opened: {error}") from None


def _fitted(image: Image.Image, mime_type: str, data: bytes) -> PreparedImage:
    was = f"{image.width}x{image.height}, {_size(len(data))}"
    if max(image.size) <= LONGEST_SIDE and _base64_length(data) <= LARGEST_BASE64:
        return PreparedImage(mime_type, data, f"{mime_type}, {was}")
    smaller = _scaled(image)
    mime_type, data = _encoded(smaller, mime_type)
    now = f"{smaller.width}x{smaller.height}, {_size(len(data))}"
    return PreparedImage(mime_type, data, f"{mime_type}, {now} (scaled from {was})")


def _scaled(image: Image.Image) -> Image.Image:
    from PIL import ImageOps  # noqa: PLC0415 - see prepare_image

    upright = ImageOps.exif_transpose(image)
    upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return upright


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
