"""Images for models: by path or address, by content, within bounds (N17, L14, D44, D51)."""

from __future__ import annotations

import base64
import http.server
import io
import ipaddress
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from penguin.environment import addresses, images
from penguin.environment.environment import Environment, EnvironmentConfig, ToolConfig
from penguin.environment.fetch import FetchError, FetchLimits, fetch
from penguin.environment.function_tool import tool
from penguin.environment.images import UnusableImage, prepare_encoded, prepare_image
from penguin.environment.tool import Services, ToolResult
from penguin.environment.tools.describe_image import VisionDescriber
from penguin.protocol.builders import tool_call
from penguin.protocol.interfaces import ToolExecutionRequest
from penguin.protocol.messages import Message, ToolCallOutput
from penguin.testing.framing import assert_well_framed
from penguin.testing.scripted import ScriptedModel

pytestmark = pytest.mark.anyio

_getaddrinfo = socket.getaddrinfo


def picture(size: tuple[int, int] = (8, 6), kind: str = "PNG", *, noise: bool = False, mode: str = "RGB") -> bytes:
    image = Image.effect_noise(size, 200).convert(mode) if noise else Image.new(mode, size, (200, 30, 30))
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=100)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_L14_a_small_image_stays_byte_for_byte(kind: str) -> None:
    data = picture(kind=kind)
    image = prepare_image(data)
    assert image.data == data
    assert image.mime_type == f"image/{kind.lower()}"
    assert base64.b64decode(image.data_url.split(",")[1]) == data
    assert "8x6" in image.note


@pytest.mark.parametrize(("name", "is_shown"), [(b"iCCP", True), (b"tEXt", True), (b"PLTE", False)])
def test_L14_a_png_with_a_damaged_extra_is_shown_without_it(name: bytes, is_shown: bool) -> None:
    whole = picture()
    part = (9).to_bytes(4, "big") + name + b"made up x" + b"oops"
    damaged = whole[:33] + part + whole[33:]  # behind the header
    if is_shown:
        assert prepare_image(damaged).data == whole
    else:
        with pytest.raises(UnusableImage):
            prepare_image(damaged)


@pytest.mark.parametrize("end", [9, 20, 33, 40])
def test_L14_a_png_that_ends_too_early_raises_nothing_else(end: int) -> None:
    with pytest.raises(UnusableImage):
        prepare_image(picture()[:end])


def test_L14_a_large_image_is_scaled_once_with_a_note() -> None:
    image = prepare_image(picture((4000, 1000)))
    assert opened(image.data).size == (2000, 500)
    assert "scaled from 4000x1000" in image.note


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A fraction of the limit, for as much smaller pictures: noise takes long to compress."""
    assert images.LARGEST_BASE64 == 5 * 1024 * 1024
    monkeypatch.setattr(images, "LARGEST_BASE64", images.LARGEST_BASE64 // 12)
    return images.LARGEST_BASE64


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_D44_the_limit_counts_base64_bytes(kind: str, small_limit: int) -> None:
    data = picture((630, 600), kind, noise=True)
    assert len(base64.b64encode(data)) > small_limit
    image = prepare_image(data)
    assert len(base64.b64encode(image.data)) <= small_limit
    assert opened(image.data).size == (630, 600)


def test_L14_transparency_survives_or_becomes_white(small_limit: int) -> None:
    small = prepare_image(picture((3000, 10), mode="RGBA"))
    assert small.mime_type == "image/png"
    noisy = prepare_image(picture((600, 600), "PNG", noise=True, mode="RGBA"))
    assert noisy.mime_type == "image/jpeg"
    assert len(base64.b64encode(noisy.data)) <= small_limit


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", b"not an image", picture()[:40], picture(kind="BMP"), b"<svg xmlns='x'></svg>"]
)
def test_N17_types_are_told_by_content(data: bytes) -> None:
    with pytest.raises(UnusableImage):
        prepare_image(data)


# --- more than it seems ---------------------------------------------------------------------------

BOMB = """
import io, resource, sys, threading
from PIL import Image
from penguin.environment.images import UnusableImage, prepare_encoded, prepare_image

data = sys.stdin.buffer.read()
small = io.BytesIO()
Image.new("RGB", (3, 3)).save(small, sys.argv[1])
prepare_image(small.getvalue())  # what the library itself takes
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

said = []

def run():
    try:
        said.append(prepare_image(data).note)
    except UnusableImage as error:
        said.append(str(error))

threads = [threading.Thread(target=run) for _ in range(int(sys.argv[2]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*said, sep="\\n")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def blank(kind: str, size: tuple[int, int], mode: str = "RGB", **options: Any) -> bytes:
    """A large picture of nothing: a small file that unfolds."""
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "size", "mode", "options", "words"),
    [
        ("PNG", (13_000, 13_000), "L", {"compress_level": 1}, "13000x13000 are too many pixels; at most 50 million"),
        ("PNG", (4_000, 4_000), "RGBA", {"compress_level": 1}, "2000x2000"),
        ("JPEG", (10_000, 10_000), "L", {}, "2000x2000"),
        ("JPEG", (7_100, 7_100), "L", {"progressive": True}, "too many pixels"),
        ("GIF", (7_100, 7_100), "L", {}, "too many pixels"),
        pytest.param("WEBP", (5_200, 5_200), "RGB", {"method": 0}, "at most 25 million", marks=pytest.mark.long),
        pytest.param("JPEG", (14_000, 14_000), "L", {}, "too large to be opened", marks=pytest.mark.long),
    ],
)
def test_N17_a_decompression_bomb_costs_little_memory_and_no_warning(
    kind: str, size: tuple[int, int], mode: str, options: dict[str, Any], words: str
) -> None:
    data = blank(kind, size, mode, **options)
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", BOMB, kind, "2"], input=data, capture_output=True, check=True
    )
    *notes, megabytes = ran.stdout.decode().splitlines()
    assert all(words in note for note in notes)
    assert len(notes) == 2
    assert int(megabytes) < 200
    assert ran.stderr == b""


async def test_N17_read_image_says_that_an_image_has_too_many_pixels(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(blank("PNG", (8_000, 8_000), "L"))
    output = await ask(Environment(EnvironmentConfig(tmp_path)), "read_image", source="bomb.png")
    assert output.stop_reason == "failed"
    assert "8000x8000 are too many pixels" in output.output
    assert "scaled down with a command" in output.output


def test_L14_a_photo_is_turned_upright_after_it_was_made_small() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the camera was held upright
    buffer = io.BytesIO()
    Image.new("RGB", (4000, 1000)).save(buffer, "JPEG", exif=exif)
    image = prepare_image(buffer.getvalue())
    assert opened(image.data).size == (500, 2000)


def test_L14_a_file_of_two_pictures_from_a_phone_is_a_jpeg() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6)).save(buffer, "MPO", save_all=True, append_images=[Image.new("RGB", (8, 6))])
    assert opened(buffer.getvalue()).format == "MPO"
    assert prepare_image(buffer.getvalue()).mime_type == "image/jpeg"


def test_D51_a_file_of_many_bytes_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LARGEST_FILE", 1_000)
    with pytest.raises(UnusableImage, match=r"2 kB; an image may have 1000 B"):
        prepare_image(bytes(2_000))
    with pytest.raises(UnusableImage, match="of base64"):
        prepare_encoded("A" * 2_000)
    with pytest.raises(UnusableImage, match="damaged"):
        prepare_encoded("%%%")


async def test_L14_D44_images_of_any_tool_go_through_the_entry_step(tmp_path: Path) -> None:
    large, broken = picture((3000, 30)), b"no image"

    @tool
    def show() -> ToolResult:
        """Show two pictures."""
        urls = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in (large, broken)]
        return ToolResult(note="two pictures", images=urls)

    output = await ask(Environment(EnvironmentConfig(tmp_path, ToolConfig(custom_tools=[show]))), "show")
    assert output.images is not None
    (url,) = output.images
    assert opened(base64.b64decode(url.partition(",")[2])).size == (2000, 20)
    assert "scaled from 3000x30" in output.output
    assert "an image was left out: this is not an image" in output.output
    assert output.output.startswith("two pictures")


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.5.5",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_N17_D51_addresses_that_are_not_public(address: str) -> None:
    assert not addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"])
def test_N17_public_addresses(address: str) -> None:
    assert addresses.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:1/api/config",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://localhost/",
        "http://[::ffff:127.0.0.1]/",
        "https://127.0.0.1/",
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://127.0.0.1/",
        "http:///x",
        "http://127.0.0.1:99999999/",
    ],
)
def test_N17_D51_refused_before_any_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> socket.socket:
        pytest.fail("a connection was made")

    monkeypatch.setattr(socket, "create_connection", connect)
    # Spelled-out addresses look like names to the guard against the real network; resolving them asks nobody.
    monkeypatch.setattr(socket, "getaddrinfo", _getaddrinfo)
    with pytest.raises(FetchError):
        fetch(url)


@pytest.mark.parametrize("url", ["data:image/png;base64,AAAA", "DATA:,x", "javascript:1", "//host/x", "C:\\x.png"])
def test_N17_D51_only_http_is_fetched(url: str) -> None:
    with pytest.raises(FetchError, match="only http"):
        fetch(url)


def name_server(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let every name stand for these addresses, one list for each time it is asked; returns what is asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


PUBLIC, PRIVATE = "93.184.216.34", "10.1.2.3"


@pytest.mark.parametrize(
    "answer",
    [
        [PUBLIC, PRIVATE],
        [PRIVATE, PUBLIC],
        [PUBLIC, "169.254.169.254"],
        [PUBLIC, "::1"],
        [PUBLIC, "::ffff:10.1.2.3"],
        [PUBLIC, "fe80::1%eth0"],
    ],
)
def test_D51_a_name_with_one_private_address_among_public_ones_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: list[str]
) -> None:
    name_server(monkeypatch, answer)
    connections: list[Any] = []
    monkeypatch.setattr(socket, "create_connection", lambda *args, **_: connections.append(args))
    with pytest.raises(FetchError, match="not a public address; it was not contacted"):
        fetch("http://mixed.example/x.png")
    assert connections == []


def test_D51_a_name_that_changes_its_mind_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = name_server(monkeypatch, [PUBLIC], [PRIVATE])
    connections: list[Any] = []

    def connect(address: Any, **_: Any) -> Any:
        connections.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(FetchError, match="Connection refused"):
        fetch("http://rebinding.example/x.png")
    assert asked == ["rebinding.example"]
    assert connections == [(PUBLIC, 80)]


@pytest.mark.parametrize(
    ("allowed", "passes"),
    [
        (["wiki.local"], True),
        (["WIKI.local."], True),
        (["10.0.0.0/8"], True),
        (["10.1.2.3"], True),
        (["other.local", "10.1.0.0/16"], True),
        (["local"], False),
        (["10.2.0.0/16"], False),
        (["fd00::/8"], False),
        ([], False),
    ],
)
def test_D51_own_hosts_and_networks_can_be_allowed(
    monkeypatch: pytest.MonkeyPatch, allowed: list[str], *, passes: bool
) -> None:
    name_server(monkeypatch, [PUBLIC, PRIVATE])
    if passes:
        assert PRIVATE in map(str, addresses.resolve_public("wiki.local", 80, allowed))
        return
    with pytest.raises(addresses.RefusedAddress, match=r"allowed_hosts under \[fetch\] in \.project_config\.toml"):
        addresses.resolve_public("wiki.local", 80, allowed)


def test_D51_an_allowed_network_is_known_in_disguise(monkeypatch: pytest.MonkeyPatch) -> None:
    name_server(monkeypatch, ["::ffff:10.1.2.3"])
    assert addresses.resolve_public("wiki.local", 80, ["10.0.0.0/8"])


# --- fetching, from a server on the loopback that the test allows --------------------------------------


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Answer]]]:
    answers: dict[str, Answer] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers[self.path](self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}", answers
        httpd.shutdown()
        thread.join()


def content(data: bytes) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def redirect(to: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


ALLOWED = {"127.0.0.1"}


def test_N17_a_file_is_fetched_and_redirects_are_followed(server: tuple[str, dict[str, Answer]]) -> None:
    base, answers = server
    answers |= {"/a": redirect("/b?x=1"), "/b?x=1": content(b"bytes")}
    assert fetch(f"{base}/a", allowed_hosts=ALLOWED) == b"bytes"


def test_N17_every_hop_passes_the_filter(server: tuple[str, dict[str, Answer]]) -> None:
    base, answers = server
    answers |= {"/a": redirect("http://169.254.169.254/"), "/b": redirect("file:///etc/passwd"), "/c": redirect("/c")}
    with pytest.raises(FetchError, match=r"169\.254"):
        fetch(f"{base}/a", allowed_hosts=ALLOWED)
    with pytest.raises(FetchError, match="only http"):
        fetch(f"{base}/b", allowed_hosts=ALLOWED)
    with pytest.raises(FetchError, match="redirects"):
        fetch(f"{base}/c", allowed_hosts=ALLOWED)


def test_N17_size_and_status_are_bounded(server: tuple[str, dict[str, Answer]]) -> None:
    base, answers = server
    answers |= {"/big": content(b"x" * 300_000)}
    with pytest.raises(FetchError, match="larger"):
        fetch(f"{base}/big", FetchLimits(size=100_000), ALLOWED)


# --- the tools ------------------------------------------------------------------------------------


async def ask(environment: Environment, name: str, **args: str) -> ToolCallOutput:
    said: list[Message] = []
    call = tool_call(name, msgspec.json.encode(args).decode(), "c1")
    await environment.execute_tool(ToolExecutionRequest(call), said.append)
    await environment.aclose()
    assert_well_framed(said)
    assert all(message.line for message in said)  # every one can be written to the trace
    complete = said[-1].payload
    assert isinstance(complete, ToolCallOutput)
    return complete


async def test_N17_read_image_attaches_the_image(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    output = await ask(Environment(EnvironmentConfig(tmp_path)), "read_image", source="a.png")
    assert output.images == [prepare_image(picture()).data_url]
    assert output.output.startswith("image/png, 8x6")


async def test_D51_read_image_fetches_from_allowed_hosts_only(
    tmp_path: Path, server: tuple[str, dict[str, Answer]]
) -> None:
    base, answers = server
    answers["/x.png"] = content(picture())
    allowed = Environment(EnvironmentConfig(tmp_path, allowed_hosts=["127.0.0.0/8"]))
    assert (await ask(allowed, "read_image", source=f"{base}/x.png")).images == [prepare_image(picture()).data_url]
    refused = await ask(Environment(EnvironmentConfig(tmp_path)), "read_image", source=f"{base}/x.png")
    assert "not a public address" in refused.output


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("data:image/png;base64,AAAA", "A data: address is not read; save the image to a file"),
        ("DATA:,x", "A data: address is not read"),
        ("missing.png", "missing.png"),
        ("text.txt", "not an image"),
        (".", "director"),
        ("http://127.0.0.1/x.png", "not a public address"),
        ("file:///etc/passwd", "only http"),
    ],
)
async def test_N17_what_cannot_be_shown_is_said(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "text.txt").write_text("hello")
    output = await ask(Environment(EnvironmentConfig(tmp_path)), "read_image", source=source)
    assert output.stop_reason == "failed"
    assert words in output.output


async def test_N17_which_tool_is_offered_depends_on_the_model(tmp_path: Path) -> None:
    for vision, offered, other in ((True, "read_image", "describe_image"), (False, "describe_image", "read_image")):
        environment = Environment(EnvironmentConfig(tmp_path, ToolConfig(), vision=vision))
        names = {tool.name for tool in await environment.list_tools()}
        assert offered in names
        assert other not in names
        await environment.aclose()


async def test_N17_describe_image_asks_the_vision_model(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    model = ScriptedModel(["A red rectangle."])
    services = Services(vision_describer=VisionDescriber("seer", lambda: model))
    environment = Environment(EnvironmentConfig(tmp_path, vision=False, services=services))
    output = await ask(environment, "describe_image", source="a.png", prompt="What colour?")
    assert output.output.startswith("A red rectangle.")
    assert "described by seer" in output.output
    assert [type(m.payload).__name__ for m in model.requests[0].new_messages] == ["Text", "ImageUrl"]


async def test_N17_without_a_vision_model_it_fails_with_the_setting_to_change(tmp_path: Path) -> None:
    output = await ask(Environment(EnvironmentConfig(tmp_path, vision=False)), "describe_image", source="a.png")
    assert output.stop_reason == "failed"
    assert "penguin config model vision" in output.output
