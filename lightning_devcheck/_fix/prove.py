"""Try edits: a fix is proven where a run with it is without its finding, and nothing else is worse.

NOTE [The search]
All edits together are tried first. What a run blames (its finding is still there, or something new
is at its lines) is tried no more, or in another way; where nothing can be blamed, the rest is
halved. What is proven is always one set of edits that has run just so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lightning_devcheck._fix.last_resort import moved_where_used
from lightning_devcheck._fix.places import Places
from lightning_devcheck._fix.project import refusal
from lightning_devcheck._fix.trial import UNKNOWN, Repair, Trial, difference, judged
from lightning_devcheck._report.edits import SourceFile
from lightning_devcheck._report.records import Edit, Finding
from lightning_devcheck._report.report import Report

MAX_RUNS = 5
# what may add keys or parameters: only a guess, which says what is tried apart from the others
_MAY_ADD = re.compile(
    r"\b(ModuleList|ModuleDict|ParameterList|ParameterDict|Parameter|Module|register_parameter)\b"
    r"|register_buffer(?!.*persistent=False)"
)

Key = tuple[object, ...]
Run = Callable[[Mapping[Path, bytes]], Trial]


@dataclass
class Verdict:
    """What a trial has shown of the repairs in it.

    Attributes:
        blamed: The repairs that did not help, or at whose lines something new is, and why.
        wrong: Why no repair is proven; empty where all that are not blamed are.
        further: What the run came to only because it went further.
        changes: Why the losses differ.
    """

    blamed: dict[Key, str] = field(default_factory=dict)
    wrong: str = ""
    further: list[Finding] = field(default_factory=list)
    changes: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all that was tried is proven."""
        return not self.blamed and not self.wrong


@dataclass
class Proof:
    """What was tried, and what that has shown.

    Attributes:
        base: The run without edits.
        last: The run with all that may be written; the run without edits where that is nothing.
        proven: What may be written.
        held: What is proven too, but changes what is saved or trained.
        failed: What was tried in vain, and why.
        refused: What was not tried, and why.
        undecided: What the runs did not suffice for.
        runs: How many runs there were.
        notes: What else is to be said.
    """

    base: Trial
    last: Trial
    proven: list[Repair] = field(default_factory=list)
    held: list[Repair] = field(default_factory=list)
    failed: dict[Key, str] = field(default_factory=dict)
    refused: dict[Key, str] = field(default_factory=dict)
    undecided: list[Repair] = field(default_factory=list)
    runs: int = 1
    notes: dict[str, None] = field(default_factory=dict)

    def report(self) -> Report:
        """What the first run has found, and what came after, with what was shown of each fix."""
        places = Places.of(edits_of(self.proven))
        known = {key_of(finding): finding for finding in self.base.report.findings}
        for finding in self.left:
            known.setdefault(places.key(finding), finding)
        shown = {repair.key: repair for repair in [*self.proven, *self.held]}
        findings = []
        for key, finding in known.items():
            if key in shown:
                finding = replace(shown[key].told, verified=True)
            elif key in self.failed:
                finding = replace(finding, verified=False)
            findings.append(finding)
        reasons = (*self.base.report.not_checked, *self.notes)
        return replace(self.base.report, findings=tuple(findings), not_checked=reasons)

    @property
    def left(self) -> list[Finding]:
        """The findings that are there with all that may be written."""
        return judged(self.last.report)

    def left_by_key(self) -> dict[Key, Finding]:
        """The same, by what tells findings apart."""
        places = Places.of(edits_of(self.proven))
        return {places.key(finding): finding for finding in self.left}


def key_of(finding: Finding) -> Key:
    """What tells a finding of files without edits from others."""
    return Places().key(finding)


def edits_of(repairs: Iterable[Repair]) -> list[Edit]:
    """All edits of some repairs."""
    return [edit for repair in repairs for edit in repair.edits]


def edited_files(repairs: Iterable[Repair]) -> dict[Path, bytes] | None:
    """What the files hold with the edits of repairs; None where those do not fit together."""
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits_of(repairs):
        path = Path(os.path.realpath(edit.filename))
        by_file.setdefault(path, []).append(edit)
    files = {}
    for path, edits in by_file.items():
        data = SourceFile.read(path).with_edits(edits)
        if data is None:
            return None
        files[path] = data
    return files


class Prover:
    """Tries the edits of a report. See NOTE [The search].

    Args:
        run: Runs the script with other contents of some files.
        root: The folder of the project.
        keeps_structure: Whether what changes a ``state_dict`` or what is trained is held.
    """

    def __init__(self, run: Run, root: Path, *, keeps_structure: bool) -> None:
        self._run = run
        self._root = root
        self._keeps_structure = keeps_structure
        self._repeats: bool | None = None

    def prove(self, base: Trial) -> Proof:
        """Try what a first run has brought.

        Args:
            base: The first run.
        """
        self._proof = Proof(base, base)
        self._known = {key_of(finding) for finding in judged(base.report)}
        self._reasons = base.reasons
        self._queue = self._groups(judged(base.report), Places())
        while self._queue and self._proof.runs < MAX_RUNS:
            self._step(self._queue.pop(0))
        self._proof.undecided = [repair for group in self._queue for repair in group]
        self._say_runs()
        return self._proof

    def _say_runs(self) -> None:
        proof = self._proof
        if proof.runs == 1:
            return
        proof.notes[f"lines that did not run: the fixes were tried in {proof.runs} runs"] = None
        if proof.undecided:
            many = len(proof.undecided)
            note = f"{many} of the fixes: {MAX_RUNS} runs, the most there are, did not suffice"
            proof.notes[note] = None

    def _groups(self, findings: Iterable[Finding], places: Places) -> list[list[Repair]]:
        """Put together what is tried together."""
        plain: list[Repair] = []
        adding: list[Repair] = []
        # of all ranks; one that has edits comes last
        ordered = sorted(findings, key=lambda finding: bool(finding.edits))
        by_key = {places.key(finding): finding for finding in ordered}
        for finding in by_key.values():
            repair = self._repair(finding, places)
            if repair is None:
                continue
            if self._keeps_structure and _may_add(repair):
                adding.append(repair)
            else:
                plain.append(repair)
        return [group for group in (plain, adding) if group]

    def _repair(self, finding: Finding, places: Places) -> Repair | None:
        """What to try for a finding; None where there is nothing, or nothing that may be."""
        if finding.edits:
            edits, is_last = finding.edits, False
        else:
            edits, is_last = moved_where_used(finding), True
        if places.edits:  # it was found with edits, and is to be written beside them
            edits = places.moved_back(edits)
        if not edits:
            return None
        key = places.key(finding)
        repair = Repair(finding, edits, key, is_last)
        for path in sorted(repair.paths):
            reason = refusal(path, self._root, self._proof.base.ran)
            if reason:
                self._proof.refused[key] = reason
                return None
        return self._fitting(repair)

    def _fitting(self, repair: Repair) -> Repair | None:
        """The repair, where it fits its files by itself."""
        if edited_files([repair]) is None:
            self._proof.refused[repair.key] = "its edits do not fit the file"
            return None
        return repair

    def _together(self, group: list[Repair]) -> list[Repair]:
        """The repairs that fit together, and to what is proven; the others are tried after them."""
        fitting: list[Repair] = []
        for repair in group:
            if edited_files([*self._proof.proven, *fitting, repair]) is not None:
                fitting.append(repair)
                continue
            why = "its edits overlap with those of another fix: run it again after that"
            self._proof.refused[repair.key] = why
        return fitting

    def _step(self, group: list[Repair]) -> None:
        """Try a group beside what is proven, and decide what is tried next."""
        group = self._together(group)
        if not group:
            return
        proof = self._proof
        repairs = [*proof.proven, *group]
        trial = self._run(edited_files(repairs) or {})
        proof.runs += 1
        verdict = self._judge(trial, repairs)
        if verdict.is_right and not self._is_held(trial, group):
            self._accept(trial, group, verdict)
            return
        if verdict.is_right:
            self._hold(group)
            return
        blamed = [repair for repair in group if repair.key in verdict.blamed]
        if not blamed and len(group) > 1:
            middle = len(group) // 2
            self._queue[:0] = [group[:middle], group[middle:]]
            return
        others = [repair for repair in group if repair not in blamed]
        if not blamed:
            blamed, others = group, []
        for repair in blamed:
            proof.failed[repair.key] = verdict.blamed.get(repair.key, verdict.wrong)
        others += self._last_resorts(blamed)
        if others:
            self._queue.insert(0, others)

    def _last_resorts(self, blamed: Iterable[Repair]) -> list[Repair]:
        """What else can be tried for the findings of failed repairs."""
        found = []
        for repair in blamed:
            if repair.is_last:
                continue
            bare = replace(repair.finding, edits=())
            other = self._repair(bare, Places())
            if other is not None and other.edits != repair.edits:
                found.append(replace(other, finding=repair.finding))
        return found

    def _accept(self, trial: Trial, group: list[Repair], verdict: Verdict) -> None:
        proof = self._proof
        proof.proven += group
        proof.last = trial
        for repair in group:
            proof.failed.pop(repair.key, None)
        if verdict.changes:
            proof.notes[f"losses: they differ with the fixes, since {verdict.changes}"] = None
        places = Places.of(edits_of(proof.proven))
        self._known |= {places.key(finding) for finding in verdict.further}
        self._reasons |= trial.reasons
        self._queue += self._groups(verdict.further, places)

    def _is_held(self, trial: Trial, group: list[Repair]) -> bool:
        """Whether a group changes what is saved or trained, which only ``--all`` may."""
        if not self._keeps_structure:
            return False
        before = self._proof.last
        if before.has_backward and trial.has_backward:
            return before.structure != trial.structure
        return any(map(_may_add, group))

    def _hold(self, group: list[Repair]) -> None:
        """Keep a group from being written, or look which part of it has to be."""
        adding = [repair for repair in group if _may_add(repair)]
        if len(group) == 1 or len(adding) == len(group):
            self._proof.held += group
            return
        others = [repair for repair in group if repair not in adding]
        if not adding:
            middle = len(group) // 2
            adding, others = group[:middle], group[middle:]
        self._queue[:0] = [others, adding]

    def _judge(self, trial: Trial, repairs: list[Repair]) -> Verdict:
        """Compare a run with the one without edits."""
        places = Places.of(edits_of(repairs))
        now = {places.key(finding): finding for finding in judged(trial.report)}
        verdict = Verdict()
        for repair in repairs:
            if repair.key in now:
                verdict.blamed[repair.key] = "the finding is still there with it"
        fresh = {key: finding for key, finding in now.items() if key not in self._known}
        self._judge_new(fresh, repairs, places, verdict)
        self._judge_end(trial, fresh, verdict)
        if verdict.is_right:
            self._judge_losses(trial, repairs, verdict)
        return verdict

    def _judge_new(
        self,
        fresh: Mapping[Key, Finding],
        repairs: list[Repair],
        places: Places,
        verdict: Verdict,
    ) -> None:
        for finding in fresh.values():
            origins = (finding.decided, finding.origin, finding.used)
            lines = {places.before(origin) for origin in origins}
            guilty = [repair for repair in repairs if repair.lines & lines]
            for repair in guilty:
                verdict.blamed.setdefault(repair.key, f"with it, {finding.what}")
            if guilty:
                continue
            if self._reasons:  # it came further than the run before
                verdict.further.append(finding)
            else:
                verdict.wrong = f"with them, {finding.what}"

    def _judge_end(self, trial: Trial, fresh: Mapping[Key, Finding], verdict: Verdict) -> None:
        """Blame a run for failing where the one before did not, or otherwise."""
        raised = trial.reasons - self._reasons
        is_explained = self._reasons and fresh
        if raised and not is_explained:
            verdict.wrong = f"with them, the script fails: {min(raised)}"

    def _judge_losses(self, trial: Trial, repairs: list[Repair], verdict: Verdict) -> None:
        reason = difference(self._proof.base, trial, repairs)
        if reason == UNKNOWN:
            reason = self._reason_by_repeating()
        if reason == UNKNOWN:
            verdict.wrong = f"with them, {UNKNOWN}"
        verdict.changes = reason

    def _reason_by_repeating(self) -> str:
        """Run again without edits: losses that differ in each run prove nothing."""
        if self._repeats is None and self._proof.runs < MAX_RUNS:
            again = self._run({})
            self._proof.runs += 1
            self._repeats = not difference(self._proof.base, again, ())
        if self._repeats is False:
            return "the script computes other ones in each run"
        return UNKNOWN


def _may_add(repair: Repair) -> bool:
    return any(_MAY_ADD.search(edit.new) for edit in repair.edits)
