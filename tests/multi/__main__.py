"""Each mistake of each script alone, all others corrected: ``python -m tests.multi [word ...]``.

A row says whether the report has this one finding and shows the marked statement, by which rule and under which name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.marked import SCRIPTS, Mistake, Run, corrected, is_called, mistakes_in, mistakes_of, run_script


def main(words: list[str]) -> int:
    """Print the table; 1 where a mistake alone is not reported alone, or a corrected script is not quiet."""
    wrong = 0
    with TemporaryDirectory() as folder:
        for path in SCRIPTS:
            if not words or any(word in path.stem for word in words):
                wrong += _rows(path, Path(folder))
    return int(wrong > 0)


def _rows(path: Path, folder: Path) -> int:
    text = path.read_text(encoding="utf-8")
    numbers = {mistake.number for mistake in mistakes_in(text)}
    wrong = 0
    print(path.name, flush=True)
    for number in sorted(numbers):
        alone = corrected(text, numbers - {number})
        (mistake,) = mistakes_in(alone)
        (folder / path.name).write_text(alone, encoding="utf-8")
        run = run_script(folder, path.name)
        fault = _fault(run, mistake)
        wrong += bool(fault)
        print(f"  {number} {fault or 'alone'}: {mistake.name}", *_lines(run), sep="\n      ", flush=True)
    (folder / path.name).write_text(corrected(text), encoding="utf-8")
    quiet = run_script(folder, path.name)
    print("  corrected: exit code", quiet.status, *_lines(quiet), sep="\n      ", flush=True)
    return wrong + (quiet.status != 0)


def _fault(run: Run, mistake: Mistake) -> str:
    """What is wrong with what was told of a mistake; empty where nothing is."""
    if not run.told:
        return f"NOT REPORTED (exit code {run.status})"
    shown = [finding for finding in run.told if mistakes_of(finding, [mistake])]
    if not shown:
        return "ELSEWHERE"
    if not any(is_called(finding.name, mistake.name) for finding in shown):
        return "OTHER NAME"
    ranks = {finding.global_rank for finding in run.told}
    return "" if len(run.told) == len(ranks) else "NOT ALONE"


def _lines(run: Run) -> list[str]:
    return [
        f"{f.severity} {f.rule} {f.name!r} {f.device} for {f.expected}, "
        f"made {f.origin and f.origin.lineno}, used {f.used and f.used.lineno}"
        for f in run.told
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
