"""What is left of a real task: its figures, its replay, its copies (K8, T12, T13)."""

from __future__ import annotations

import json

from tests.support.command_line import Place, Terminal

from penguin.state.project import Pricing
from penguin.testing import call, serve_in_thread, turn, usage

READ = call("read_file", {"file_path": "note.txt"}, id="c1")


def test_D4_T12_a_task_is_counted_and_replayed_and_a_changed_word_is_found(place: Place) -> None:
    (place.workspace / "note.txt").write_text("pelican")
    with serve_in_thread([turn(READ, usage=usage(cache_write=1_000, output=500)), "Fine."]) as provider:
        place.connect(provider.base_url, pricing=Pricing(cache_write=10.0, output=100.0))
        assert place.run("run", "-m", "hi").returncode == 0
    (trace,) = place.traces()
    name = trace.stem.removesuffix("_001")[-8:]

    stats = place.run("trace", "stats", name)
    assert stats.returncode == 0, stats.stderr
    assert "read_file 1" in stats.stdout
    assert "cost" in stats.stdout
    assert json.loads(place.run("trace", "stats", "--json").stdout)["requests"] == 2

    for target in (name, str(trace)):
        same = place.run("trace", "replay", target)
        assert (same.returncode, same.stdout) == (0, "2 requests would be sent byte for byte as before.\n"), same.stderr
    changed = trace.with_name("changed_001.jsonl")
    changed.write_bytes(trace.read_bytes().replace(b"pelican", b"Pelican"))
    other = place.run("trace", "replay", str(changed))
    assert other.returncode == 1
    assert other.stdout.startswith(f"request 2 ({changed}:")
    assert "One request before it would be the same." in other.stdout


def test_T4_a_damaged_record_is_left_out_with_a_word_and_the_conversation_goes_on(place: Place) -> None:
    with serve_in_thread(["One.", "Two.", "Three."]) as provider:
        place.connect(provider.base_url)
        place.run("run", "-m", "first")
        place.run("run", "--resume", "latest", "-m", "second")
        (trace,) = place.traces()
        lines = trace.read_bytes().split(b"\n")
        (number,) = (place for place, line in enumerate(lines) if b'"second"' in line)
        lines[number] = b"\x00\xff"
        trace.write_bytes(b"\n".join(lines))
        done = place.run("run", "--resume", "latest", "-m", "third")
        assert (done.returncode, provider.problems) == (0, [])
        sent = json.dumps(provider.requests[-1].body)
    assert f"{trace}:{number + 1}: " in done.stderr
    assert "what was said here could not be read" in sent


def test_T13_a_copy_goes_on_by_itself_and_so_does_the_session(place: Place) -> None:
    with serve_in_thread(["One.", "Two.", "Another two.", "Three."]) as provider:
        place.connect(provider.base_url)
        place.run("run", "-m", "first")
        copy = place.run("sessions", "fork", "latest").stdout.strip()
        two = place.run("sessions", "resume", copy[-8:], "-m", "second")
        old = next(each for each in place.traces() if copy not in each.name).stem.removesuffix("_001")
        other = place.run("sessions", "resume", old, "-m", "second, otherwise")
        provider_saw = [str(request.body["messages"]) for request in provider.requests]
    assert (two.stdout, other.stdout) == ("Two.\n", "Another two.\n"), two.stderr + other.stderr
    assert "second, otherwise" in provider_saw[2]
    assert "'second'" not in provider_saw[2]
    archive = place.run("sessions", "export", copy, "-o", "copy.tar.gz")
    assert (place.workspace / "copy.tar.gz").exists(), archive.stderr
    assert place.run("sessions", "delete", "--yes", copy).returncode == 0
    assert place.run("sessions", "list", "--json").stdout.count("session_id") == 1


def test_K8_at_a_terminal_the_list_fits_and_a_person_is_asked_before_a_session_is_deleted(place: Place) -> None:
    with serve_in_thread(["One."]) as provider:
        place.connect(provider.base_url)
        place.run("run", "-m", "first")
    with Terminal(place, "sessions", "list", columns=40) as terminal:
        assert terminal.end() == 0
    lines = terminal.screen.splitlines()
    assert lines[1].endswith("first")
    assert max(map(len, lines)) <= 40
    for typed, left in (("n", 1), ("y", 0)):
        with Terminal(place, "sessions", "delete", "latest") as terminal:
            terminal.wait_for(r"Delete session-.* for good\? \[y/N\]")
            terminal.type(f"{typed}\n")
            assert terminal.end() == 0
        assert len(place.traces()) == left
