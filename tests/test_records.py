"""Findings and their way to JSON types and back."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
import torch

from lightning_devcheck._report.records import Finding, Operand, Operator, Origin, TensorRecord, describe
from lightning_devcheck._report.rules import RULES, make_finding

FINDING = make_finding(
    "loss-device",
    name="loss",
    device="cpu",
    expected="cuda:0",
    shape=(1,),
    dtype="float32",
    origin=Origin("train.py", 38, "loss = torch.zeros(1)", "training_step"),
    used=Origin("train.py", 42, "loss += term"),
    others=(Operand("parameters", "cuda:0", "214 tensors"),),
    operators=(Operator("add_"),),
    step=0,
)


def test_finding_goes_to_dict_and_back():
    """A finding with every field survives the way to JSON types."""
    assert Finding.from_dict(FINDING.to_dict()) == FINDING


def test_bare_finding_goes_to_dict_and_back():
    """A finding without shape, lines and company survives as well."""
    bare = Finding("loss-device", "error", "what", "loss", "cpu")
    assert Finding.from_dict(bare.to_dict()) == bare


def test_finding_is_frozen_and_pickles():
    """A finding can be sent to another process and not be changed."""
    assert pickle.loads(pickle.dumps(FINDING)) == FINDING
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        FINDING.name = "other"


@pytest.mark.parametrize(
    ("dtype", "shape", "text"),
    [
        (torch.float32, (), "float32[]"),
        (torch.bfloat16, (4, 8), "bfloat16[4, 8]"),
        (torch.float32, None, "float32[?]"),
    ],
)
def test_describe(dtype, shape, text):
    """Dtype and shape are one word; a lazy shape is a question mark."""
    assert describe(dtype, shape) == text
    assert TensorRecord("x", torch.device("cpu"), dtype, shape).detail == text


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_fills_in_its_words(rule):
    """A finding of any rule has its headline, cause and cure, with no placeholder left."""
    finding = make_finding(rule, name="self.x", device="cpu", expected="cuda:1")
    assert finding.severity in ("error", "warning", "note")
    assert all(text and "{" not in text for text in (finding.what, finding.why, finding.fix))


def test_given_words_win_over_the_rule():
    """A judge that knows the cause replaces the rule's own words."""
    finding = make_finding("leaf-device", name="w", device="cpu", expected="cuda:1", why="because", severity="warning")
    assert (finding.why, finding.severity) == ("because", "warning")
    assert finding.fix == RULES["leaf-device"].fix
