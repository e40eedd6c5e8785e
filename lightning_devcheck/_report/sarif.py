"""The report in SARIF 2.1.0, which code scanners and editors read.

Source: the OASIS standard "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import json
from typing import Any

from lightning_devcheck._report.lines import Spot, place_of, spot_of
from lightning_devcheck._report.records import Finding, Origin
from lightning_devcheck._report.rules import RULES
from lightning_devcheck._report.text import ReportLike, group_by_cause
from lightning_devcheck._version import __version__

Object = dict[str, Any]
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_sarif(report: ReportLike, folder: str) -> str:
    """Return the report as SARIF: a run with a result for each cause.

    Args:
        report: The report.
        folder: What paths are relative to.
    """
    groups = group_by_cause(report.findings)
    findings = [group[0] for group in groups]
    broken = sorted({finding.rule for finding in findings})
    driver: Object = {"name": "lightning-devcheck"}
    driver["version"] = __version__
    driver["rules"] = [_rule(rule) for rule in broken]
    run: Object = {"tool": {"driver": driver}}
    run["columnKind"] = "unicodeCodePoints"
    run["results"] = [_result(finding, folder) for finding in findings]
    log: Object = {"$schema": SCHEMA}
    log["version"] = "2.1.0"
    log["runs"] = [run]
    return json.dumps(log, indent=2)


def _rule(rule: str) -> Object:
    why = RULES[rule].why
    return {"id": rule, "help": {"text": why}}


def _result(finding: Finding, folder: str) -> Object:
    words = finding.what, finding.why, finding.fix
    text = "\n".join(words)
    result: Object = {"ruleId": finding.rule}
    result["level"] = finding.severity
    result["message"] = {"text": text}
    place = place_of(finding)
    if place is not None:
        result["locations"] = [_location(place, folder)]
    used = finding.used
    if used is not None:
        result["relatedLocations"] = [_location(used, folder)]
    if finding.edits:
        result["fixes"] = [_fix(finding, folder)]
    return result


def _location(place: Origin, folder: str) -> Object:
    spot = spot_of(place, folder)
    physical = _of_file(spot.path)
    physical["region"] = _region(spot)
    return {"physicalLocation": physical}


def _of_file(path: str) -> Object:
    return {"artifactLocation": {"uri": path}}


def _fix(finding: Finding, folder: str) -> Object:
    """Write the edits, by file."""
    changes: dict[str, list[Object]] = {}
    for edit in finding.edits:
        start, end = edit.column, edit.end_column
        place = Origin(edit.filename, edit.lineno, "", "", edit.end_lineno, start, end)
        spot = spot_of(place, folder)
        replacement: Object = {"deletedRegion": _region(spot)}
        replacement["insertedContent"] = {"text": edit.new}
        changes.setdefault(spot.path, []).append(replacement)
    written = []
    for path, replacements in changes.items():
        change = _of_file(path)
        change["replacements"] = replacements
        written.append(change)
    fix: Object = {"artifactChanges": written}
    fix["description"] = {"text": finding.fix}
    return fix


def _region(spot: Spot) -> Object:
    start = {"startLine": spot.line, "startColumn": spot.column}
    region: Object = start | {"endLine": spot.end_line}
    if spot.end_column is not None:
        region["endColumn"] = spot.end_column
    return region
