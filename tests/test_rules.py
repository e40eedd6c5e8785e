"""Rules and their documentation."""

from __future__ import annotations

import re
from pathlib import Path

from lightning_devcheck._report.rules import RULES

DOCS = (Path(__file__).parents[1] / "docs" / "rules.md").read_text(encoding="utf-8")


def test_every_rule_has_its_section():
    """Each rule that a message can link to has a section, with an anchor, and there is no other."""
    assert re.findall(r"^\(([\w-]+)\)=\n## \1$", DOCS, re.MULTILINE) == list(RULES)


def test_sections_say_the_severity():
    """A section's severity is the rule's."""
    said = dict(re.findall(r"^## ([\w-]+)\n\n\*(error|warning|note)", DOCS, re.MULTILINE))
    assert said == {rule.id: rule.severity for rule in RULES.values()}


def test_every_section_has_a_fix():
    """A section ends in something to write instead."""
    sections = re.split(r"^\([\w-]+\)=\n", DOCS, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections if "**Fix**" not in section] == []
