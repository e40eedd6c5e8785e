"""Logs as they come: of any size, with prefixes, colours, boxes and several errors; the last device error is found."""

from __future__ import annotations

import re

import pytest

from lightning_devcheck._explain import explain_text
from lightning_devcheck._explain.log import BLOCK, OVERLAP, Log
from lightning_devcheck._explain.messages import recognize
from lightning_devcheck._report.rules import RULES

SAME = "Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0!"
LOG = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 50, in <module>\n'
    "    main()\n"
    '  File "/home/me/train.py", line 42, in training_step\n'
    "    loss += weight * term\n"
    f"RuntimeError: {SAME}\n"
)
FILLER = "epoch 1 step 10 loss 0.5 on cuda:0\n"


def found(text):
    """The rule, the device and the user's line that a text is explained with."""
    (finding,) = explain_text(text).findings
    return finding.rule, finding.device, finding.used and (finding.used.lineno, finding.used.line)


EXPECTED = ("mixed-devices", "cpu", (42, "loss += weight * term"))


def prefixed(prefix):
    """The log with something before each line; ``#`` counts the lines."""
    lines = enumerate(LOG.splitlines(), start=10)
    return "".join(f"{prefix.replace('#', str(number))}{line}\n" for number, line in lines)


PREFIXES = {
    "rank": "[rank1]: ",
    "torchrun": "[default0]:",
    "srun": "1: ",
    "docker compose": "trainer_1  | ",
    "actions": "2026-01-01T12:00:#.1234567Z ",
    "kubernetes": "2026-01-01T12:00:#.123456789Z stderr F ",
    "logger": "2026-01-01 12:00:#,123 - root - ERROR - ",
    "syslog": "Jan  1 12:00:# node7 python[4711]: ",
    "time and rank": "12:00:# [rank0]: ",
    "host": "10.0.0.12: ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_what_stands_before_each_line_is_no_part_of_it(prefix):
    """Loggers, launchers and services put the rank or the time before each line: message and line are found."""
    assert found(prefixed(prefix)) == EXPECTED


FORMS = {
    "windows": LOG.replace("\n", "\r\n"),
    "old line ends": LOG.replace("\n", "\r"),
    "progress bar": "Epoch 0:  50%|█████     | 1/2 [00:00<00:00]\rEpoch 0: 100%|███| 2/2" * 3 + "\n" + LOG,
    "colours": re.sub("(File|line|RuntimeError|cuda|:0)", "\x1b[1;31m\\1\x1b[0m", LOG),
    "links": LOG.replace("/home/me/train.py", "\x1b]8;;file://x\x1b\\/home/me/train.py\x1b]8;;\x1b\\"),
    "text behind": LOG + FILLER * 50_000,
    "text before": FILLER * 50_000 + LOG,
    "no line end before": "x" * 1_000_000 + "\n" + LOG,
    "no final line end": LOG.rstrip(),
    "zero bytes": LOG.replace("e", "e\0"),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_form_of_a_log(text):
    """Line ends, progress bars, colours, links and length change nothing."""
    assert found(text) == EXPECTED


BOX = """\
╭─────────────── Traceback (most recent call last) ────────────────╮
│ /home/me/train.py:42 in training_step                            │
│                                                                  │
│   41 │   │   for term in terms:                                  │
│ ❱ 42 │   │   │   loss += weight * term                           │
╰──────────────────────────────────────────────────────────────────╯
RuntimeError: Expected all tensors to be on the same device, but
found at least two devices, cpu and cuda:0!
"""
IN_BOX = """\
│ RuntimeError: Expected all tensors to be on the same device, but │
│ found at least two devices, cpu and cuda:0!                      │
"""


@pytest.mark.parametrize("text", [BOX, IN_BOX], ids=["beside", "inside"])
def test_message_that_a_box_breaks(text):
    """A console that draws boxes breaks the message into lines."""
    assert found(text) == ("mixed-devices", "cpu", None)


@pytest.mark.parametrize("shift", [0, 1, 17, 60, 90, 200, OVERLAP - 50, OVERLAP])
def test_message_across_two_blocks(shift):
    """A message that the end of a block cuts anywhere is found whole, with its traceback."""
    text = "x" * (BLOCK - len(LOG) + shift) + "\n" + LOG + FILLER
    assert found(text) == EXPECTED


def test_pieces_of_any_size():
    """A log that comes in small pieces is read as one."""
    log = Log()
    for character in FILLER * 3 + LOG:
        log.read(character)
    assert log.match.devices == ("cpu", "cuda:0")
    assert log.lines()[0].lineno == 42


INDEX = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 7, in forward\n'
    "    return table[index]\n"
    "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cpu)\n"
)
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
METRIC = (
    "Traceback (most recent call last):\n"
    '  File "/x/lib/site-packages/torchmetrics/metric.py", line 482, in wrapped_func\n'
    "    update(*args, **kwargs)\n"
    "RuntimeError: Encountered different devices in metric calculation (see stacktrace for details).\n"
)


@pytest.mark.parametrize("between", ["", FILLER, FILLER * 20_000, DURING], ids=["", "line", "long", "chained"])
def test_last_device_error_wins(between):
    """Of several device errors the last one counts, with its own line."""
    assert found(LOG + between + INDEX) == ("mixed-devices", "cpu", (7, "return table[index]"))
    assert found(INDEX + between + LOG) == EXPECTED


def test_chained_error_has_the_line_of_its_cause():
    """An error whose own traceback shows no line of the user's has the one that it was raised from."""
    assert found(LOG + CAUSE + METRIC) == ("metric-device", "another device", (42, "loss += weight * term"))


OTHERS = ["ValueError: no\n", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n", FILLER * 20_000]
OTHERS += ["RuntimeError: expected scalar type Float but found Half\n", "KeyboardInterrupt\n"]
OTHERS += ["[rank1]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer\n"]
OTHERS += [
    "RuntimeError: Connection closed by peer [10.0.0.1]:2345\n",
    "Watchdog caught collective operation timeout\n",
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda text: text[:30].strip())
def test_other_errors_do_not_hide_it(other):
    """What is no device error, and what the other ranks say about the one that left, comes after it in vain."""
    assert found(LOG + other) == EXPECTED


def test_lost_peer_alone():
    """A log of a rank that only lost its peers says where to look."""
    report = explain_text(FILLER * 20_000 + "RuntimeError: Connection closed by peer [10.0.0.1]:2345\n")
    assert report.findings == ()
    assert "look at the report of the process that failed first" in str(report)


def test_ranks_that_write_at_once():
    """Lines of two ranks are told apart: the line is of the rank whose error is the last."""
    one = [f"[rank0]: {line}" for line in LOG.splitlines()]
    two = [f"[rank1]: {line}" for line in INDEX.replace("line 7", "line 9").splitlines()]
    mixed = [line for pair in zip(one, two, strict=False) for line in pair] + one[len(two) :]
    assert found("\n".join(mixed)) == EXPECTED


def test_line_of_another_error_is_not_shown():
    """A message without a traceback has no line, least of all that of an earlier failure."""
    earlier = LOG.replace(SAME, "CUDA out of memory") + FILLER * 1000
    assert found(earlier + f"ERROR: {SAME}\n") == ("mixed-devices", "cpu", None)


def test_compiled_code_has_its_line_behind_the_message():
    """torch.compile tells the user's line after its message."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 50, in <module>\n'
        "    main()\n"
        "torch._dynamo.exc.TorchRuntimeError: Dynamo failed to run FX node with fake tensors: got RuntimeError("
        "'Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cuda:0, cpu')\n\n"
        "from user code:\n"
        '   File "/home/me/train.py", line 5, in forward\n'
        "    return x + noise\n\n"
        "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace.\n"
    )
    assert found(text) == ("mixed-devices", "cpu", (5, "return x + noise"))


def test_own_reports_are_no_errors():
    """The words of our own rules and reports in a log are not taken for an error."""
    words = "\n".join(f"{rule.what} {rule.why} {rule.fix}" for rule in RULES.values())
    assert recognize(words) is None


LINEAR = {
    "one long line": "x" * 2_000_000,
    "words of a pattern": "must be on the " * 120_000,
    "beginnings": "Function Function invalid gradient at index 0 - expected type but got expected " * 20_000,
    "all clues": "all must same device Expected hook 'x' has changed the FakeTensor only support NCCL " * 20_000,
    "one word": "Function " + "A" * 2_000_000,
    "quotes": "hook '" * 300_000 + "has changed the ",
}


@pytest.mark.parametrize("text", LINEAR.values(), ids=LINEAR)
def test_text_that_is_slow_to_search(text):
    """Texts that make a search start everywhere are read to their end, and give nothing."""
    assert explain_text(text) is None


@pytest.mark.parametrize("mark", ["> ", ">> ", "E   "])
def test_message_that_is_wrapped_in_a_quotation(mark):
    """A mark at the beginning of each line of a wrapped message is no part of it."""
    text = f"{mark}RuntimeError: Expected all tensors to be on the same\n{mark}device, but found at least two devices, "
    finding = explain_text(f"{text}cpu\n{mark}and cuda:0!").findings[0]
    assert (finding.device, finding.expected) == ("cpu", "cuda:0")
