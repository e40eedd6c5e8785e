"""``lightning-devcheck explain`` reads bytes in whatever encoding they are."""

from __future__ import annotations

import codecs
import io
import sys

import pytest

from lightning_devcheck._explain.decode import PIECE, encoding_of, read_log
from lightning_devcheck._run.cli import main

LOG = (
    "epoch 1 损失 0.5 ü\n" * 3 + "Traceback (most recent call last):\n"
    '  File "/home/我/train.py", line 42, in training_step\n'
    "    损失 += weight * term\n"
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!\n"
)
BYTES = {
    "utf-8": LOG.encode(),
    "utf-8 with mark": codecs.BOM_UTF8 + LOG.encode(),
    "utf-16 with mark": LOG.encode("utf-16"),
    "utf-16-be with mark": codecs.BOM_UTF16_BE + LOG.encode("utf-16-be"),
    "utf-16-le": LOG.encode("utf-16-le"),
    "utf-16-be": LOG.encode("utf-16-be"),
    "utf-32 with mark": LOG.encode("utf-32"),
    "utf-32-le": LOG.encode("utf-32-le"),
    "utf-32-be": LOG.encode("utf-32-be"),
}
BROKEN = {
    "gbk": LOG.replace("ü", "").encode("gbk"),
    "latin-1": LOG.replace("损失", "größe").replace("我", "ich").encode("latin-1"),
    "garbage": bytes(range(256)) * 40 + LOG.encode() + bytes(range(256)) * 40,
    "a hole of zeros": bytes(10_000) + LOG.encode() + bytes(10_000),
    "ascii, then utf-16": b"epoch 1\n" * 900 + LOG.encode("utf-16"),
    "utf-16, then ascii": "epoch 1\n".encode("utf-16") * 900 + LOG.encode(),
    "utf-16, then one byte, then utf-16": "epoch 1\n".encode("utf-16") * 900 + b"!" + LOG.encode("utf-16-le"),
    "utf-16 that is cut": LOG.encode("utf-16") + b"\x00\xd8\x01",
    "mostly chinese utf-16": ("训练损失很大" * 20 + "\n").encode("utf-16-le") * 50 + LOG.encode("utf-16-le"),
}


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
def test_encoding(data):
    """An encoding is told by its mark or by its zero bytes: message, file and line are read."""
    log = read_log(io.BytesIO(data))
    line = log.lines()[0]
    assert log.match.devices == ("cpu", "cuda:0")
    assert (line.filename, line.lineno, line.line) == ("/home/我/train.py", 42, "损失 += weight * term")


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_bytes_that_are_no_text_of_one_encoding(data):
    """Other encodings, several in one file, and bytes that are no text: the message is found, the line too."""
    log = read_log(io.BytesIO(data))
    assert log.match.devices == ("cpu", "cuda:0")
    assert log.lines()[0].lineno == 42


def test_some_zero_bytes_are_no_other_encoding():
    """A log with a few zero bytes stays what it is; short and empty ones are UTF-8."""
    assert encoding_of(LOG.encode() + b"\0") == "utf-8"
    assert encoding_of(b"") == encoding_of(b"x") == "utf-8"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("cut", range(1, 4))
def test_character_that_two_pieces_share(encoding, cut):
    """A piece may end within a character, the message in the next one."""
    filler = ("损" * PIECE).encode(encoding)[: PIECE - len(LOG.encode(encoding)) // 2 + cut]
    whole = filler[: len(filler) // 4 * 4] + "\n".encode(encoding)[-2:] + LOG.encode(encoding)
    assert read_log(io.BytesIO(whole)).match.devices == ("cpu", "cuda:0")


@pytest.fixture
def standard_input(monkeypatch):
    """Gives the process bytes to read, or the stream itself."""

    def give(data):
        stream = io.TextIOWrapper(io.BytesIO(data), "ascii") if isinstance(data, bytes) else data
        monkeypatch.setattr(sys, "stdin", stream)

    return give


def test_command_reads_bytes(standard_input, capsys):
    """The command reads bytes, not text in the process's encoding, and ends with 1 where it found an error."""
    standard_input(LOG.encode("utf-16"))
    assert main(["explain"]) == 1
    out = capsys.readouterr().out
    assert "a tensor is on cpu, what it met is on cuda:0" in out
    assert "/home/我/train.py:42" in out


def test_command_reads_text_where_there_are_no_bytes(standard_input, capsys):
    """An editor's console has a stream of text as standard input."""
    standard_input(io.StringIO(LOG))
    assert main(["explain"]) == 1
    assert "损失 += weight * term" in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"", b"\xff", b"ValueError: no\n", "ValueError\n".encode("utf-16")])
def test_command_without_a_device_error(standard_input, capsys, data):
    """A log without a device error says so, and ends with 0."""
    standard_input(data)
    assert main(["explain"]) == 0
    assert "no device error that is known was found in the text" in capsys.readouterr().err


def test_command_without_standard_input(standard_input, capsys):
    """Closed standard input is wrong usage."""
    standard_input(None)
    assert main(["explain"]) == 2
    assert "there is no standard input: lightning-devcheck explain < train.log" in capsys.readouterr().err
