"""An exception about devices, explained: which tensor, which line, why, what to write instead."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Sequence

import torch

from lightning_devcheck._compat import no_torch_function, shows_notes
from lightning_devcheck._explain.culprit import anonymous, blamed_by_message, find_culprit
from lightning_devcheck._explain.frames import Frame, read_frames, read_stack
from lightning_devcheck._explain.locate import left_behind
from lightning_devcheck._explain.log import Log
from lightning_devcheck._explain.messages import GRAD_SCALER, Match, recognize
from lightning_devcheck._explain.nodes import INVALID_GRADIENT, blame_node
from lightning_devcheck._explain.scene import Scene
from lightning_devcheck._judge.culprit import Culprit, judge_culprit
from lightning_devcheck._observe.inert import is_a, is_module, namespace
from lightning_devcheck._report.errors import DeviceMismatchError
from lightning_devcheck._report.records import Finding
from lightning_devcheck._report.report import Report
from lightning_devcheck._source.files import is_host
from lightning_devcheck._source.queries import class_source
from lightning_devcheck._witness.refusal import DECIDED, Refusal

RAISED = (RuntimeError, ValueError, TypeError, AssertionError)  # what torch and its friends raise
MAX_CAUSES = 10
# where the frames are that start somebody's code
STARTERS = os.path.join("lightning_devcheck", "_run") + os.sep


def explain(exception: BaseException, module: torch.nn.Module | None = None) -> Report | None:
    """Explain a device error that torch, torchmetrics, DDP or FSDP raised: which tensor, which line, why, what to do.

    It reads the exception's traceback: the variables of its frames and the lines of your source, on whatever devices
    the tensors are, and runs none of your code: no property, ``__getattr__``, ``__getitem__`` or ``__repr__``. No value
    is read from a device. Processes do not talk. It takes some 10 ms, and nothing before there is an exception.

    Args:
        exception: The exception, with the traceback it was raised with.
        module: The module that was trained; None takes the one that the traceback's frames show.

    Returns:
        The report, or None for an exception that was not recognized as a device error.

    Raises:
        TypeError: If ``exception`` is not an exception, or ``module`` neither a module nor None.

    Example:
        >>> import torch
        >>> from lightning_devcheck import explain, simulate_cuda
        >>> with simulate_cuda(devices=1):
        ...     scores = torch.ones(3, device="cuda")
        ...     weights = torch.ones(3)
        ...     try:
        ...         scores * weights
        ...     except RuntimeError as error:
        ...         finding = explain(error).findings[0]
        >>> finding.rule, finding.name, finding.device, finding.expected
        ('mixed-devices', 'weights', 'cpu', 'cuda:0')
    """
    if not is_a(exception, BaseException):
        kind = type(exception).__name__
        raise TypeError(f"explain(exception={exception!r}): exception is a {kind}; an exception is needed.")
    if module is not None and not is_module(module):
        kind = type(module).__name__
        raise TypeError(f"explain(module={module!r}): module is a {kind}; a torch.nn.Module or None is needed.")
    if is_a(exception, DeviceMismatchError):
        report: Report = exception.report  # type: ignore[attr-defined]
        return report
    chain = _chain(exception)
    recognized = next(((error, match) for error in chain if (match := _recognized(error))), None)
    if recognized is None:
        return None
    error, match = recognized
    if not match.message.rule:
        return Report(not_checked=(match.message.cause,))
    with no_torch_function():
        frames = [frame for one in chain[chain.index(error) :] for frame in read_frames(_traceback(one))]
        name, root = ("self", module) if module is not None else _root(frames)
        scene = Scene(match, tuple(frames), root, name, made=namespace(error).get(DECIDED))
        culprit = find_culprit(scene)
    return Report((judge_culprit(culprit),), {"tensors": scene.counted})


def explain_refusal(
    refusal: Refusal, frame: types.FrameType | None, module: torch.nn.Module | None
) -> tuple[Finding, ...]:
    """Explain what a simulation has refused and goes on from, while it happens.

    Args:
        refusal: What was refused.
        frame: The frame that runs.
        module: The module that is trained; None takes the one that the frames show.

    Returns:
        A finding for each stray; one where there is none; none where the message is not known.
    """
    match = recognize(str(refusal.error))
    if match is None or not match.message.rule:
        return ()
    with no_torch_function():
        frames = tuple(_below_us(read_stack(frame)))
        name, root = _root(frames)
        if module is not None and root is not module:
            name, root = "self", module
        strays: Sequence[torch.Tensor | None] = refusal.strays or [None]
        belongs = refusal.expected
        left = left_behind(root, frames, refusal.others)
        if left is not None:
            strays, belongs = [left], torch.device("cpu")
        found = []
        for stray in strays:
            scene = Scene(match, frames, root, name, stray=stray, belongs=belongs)
            found.append(judge_culprit(find_culprit(scene)))
    return tuple(found)


def _below_us(frames: list[Frame]) -> list[Frame]:
    """What runs inside of what we have started, and of Lightning: what comes before started the run."""
    hosts = [index for index, frame in enumerate(frames) if is_host(frame.filename)]
    started = [index + 1 for index, frame in enumerate(frames) if STARTERS in frame.filename]
    return frames[hosts[0] if hosts else started[-1] if started else 0 :]


def annotate(exception: BaseException, module: torch.nn.Module | None = None) -> None:
    """Put the report on an exception, as a note; it stays as it is. Where notes are not shown it is printed."""
    report = explain(exception, module)
    if report is None:
        return
    exception.add_note(f"\n{report}")
    if not shows_notes():
        print(f"\n{report}", file=sys.stderr, flush=True)


def explain_text(text: str) -> Report | None:
    """Explain a pasted traceback or log by its message alone; None where no message about devices is in it.

    Args:
        text: Any text, of any length; its last device error counts, whose traceback gives the line.
    """
    log = Log()
    log.read(text)
    return explain_log(log)


def explain_log(log: Log) -> Report | None:
    """Explain the last device error of a log; None where there is none.

    Args:
        log: The log, read to its end.
    """
    match = log.match
    if match is None:
        return None
    message = match.message
    if not message.rule:
        return Report(not_checked=(message.cause,))
    lines = log.lines()
    used = lines[0] if lines else None
    if message.id == INVALID_GRADIENT:
        blame = blame_node(match, "\n".join(line.line for line in lines))
        return Report((judge_culprit(blamed_by_message(match, blame, used)),))
    found, expected = _ends(match)
    words = (message.cause, message.fix)
    name = anonymous(match, found)
    culprit = Culprit(message.rule, name, "", found, stated=expected, used=used, message=words)
    return Report((judge_culprit(culprit),))


def _ends(match: Match) -> tuple[str, str]:
    """Tell where the culprit is and where it should be, as far as a message names devices."""
    found = "cpu" if "cpu" in match.devices and not match.expected else match.found
    others = [device for device in match.devices if device != found]
    expected = match.expected or next(iter(others), "the model's device")
    return found or "another device", expected


def _chain(exception: BaseException) -> list[BaseException]:
    """An exception and what it was raised from, outermost first; members of groups included."""
    found: list[BaseException] = [exception]
    for error in found:
        below = [vars(BaseException)["__cause__"].__get__(error), *_members(error)]
        found += [e for e in below if is_a(e, BaseException) and all(e is not known for known in found)]
        if len(found) > MAX_CAUSES:
            break
    return found


def _members(error: BaseException) -> tuple[BaseException, ...]:
    """The exceptions in a group."""
    if not is_a(error, BaseExceptionGroup):
        return ()
    found: tuple[BaseException, ...] = vars(BaseExceptionGroup)["exceptions"].__get__(error)
    return found


def _traceback(error: BaseException) -> types.TracebackType | None:
    found: types.TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return found


def _recognized(error: BaseException) -> Match | None:
    if not issubclass(type(error), RAISED):
        return None
    arguments = BaseException.__getattribute__(error, "args")
    text = next((argument for argument in arguments if type(argument) is str), "")
    found = recognize(text) if text else None
    if found is None and type(error) is AssertionError and not text:
        return _from_grad_scaler(error)
    return found


def _from_grad_scaler(error: BaseException) -> Match | None:
    frames = read_frames(_traceback(error))
    scaler = frames and frames[-1].filename.endswith("grad_scaler.py") and frames[-1].code.co_name == "scale"
    return Match(GRAD_SCALER, ("cpu",)) if scaler else None


def _root(frames: Sequence[Frame]) -> tuple[str, torch.nn.Module | None]:
    """The module that is trained: the outermost one that a frame of the user's or of the Trainer's works for."""
    for frame in frames:
        for name in ("pl_module", "lightning_module", "model", "module", *(("self",) if frame.is_user else ())):
            value = frame.names.get(name)
            if is_module(value):
                plain = frame.is_user and class_source(type(value)) is None  # no class of the user's says ``self``
                return (name if plain else "self"), value
    return "self", None
