"""The corpus of real mistakes, where it is at hand: culprit and line of every case that raises."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from lightning_devcheck import explain, simulate_cuda
from tests.helpers.marked import is_called
from tests.helpers.source import is_marked, load
from tests.helpers.training import make_trainer

FOLDER = Path(__file__).parents[2] / "shared" / "corpus" / "cases"
# needs a second device for the model, not for the process: the batch is already where the target should be
ELSEWHERE = {"068_model_parallel_target"}
CASES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in ELSEWHERE) if FOLDER.is_dir() else []


@pytest.mark.skipif(not CASES, reason="the corpus is not at hand")
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_that_raises(path):
    """`explain` names the culprit and its line."""
    case = load(path, f"corpus_{path.stem}")
    if "error" not in case.EXPECT["outcome"] or case.EXPECT.get("needs_nccl"):
        pytest.skip("raises nothing in one process")
    with simulate_cuda(devices=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = make_trainer(accelerator="gpu", devices=[1], max_steps=2)
        data = DataLoader([case.make_batch() for _ in range(3)], batch_size=None, collate_fn=lambda batch: batch)
        with pytest.raises(RuntimeError) as caught:
            trainer.fit(case.Model(), data)
        (finding,) = explain(caught.value).findings
    assert is_marked(finding.origin) or is_marked(finding.used), finding
    assert is_called(finding.name, case.EXPECT["culprit"]), finding.name
