"""`lightning-devcheck run` on programs without a Trainer: what it reports, and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOOP = """
import sys
import torch

model = torch.nn.Linear(4, 1).to("cuda:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(0 if "idle" in sys.argv else 3):
    loss = model(torch.randn(2, 4, device="cuda:0")).mean()
    if "cpu" in sys.argv:
        loss = loss.cpu()
    if "cut" in sys.argv:
        loss = loss.detach() * 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RANKS = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, where):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = dist.FileStore(sys.argv[2], 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    device = torch.device(where.format(rank=rank))
    net = torch.nn.Linear(4, 1).to(device)
    for step in range(2):
        net(torch.randn(2, 4, device=device)).mean().backward()
        dist.all_reduce(net.weight.grad)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, (sys.argv[1],), nprocs=2)
"""


def run(script, *arguments):
    """Run a script under the command, with a report as JSON."""
    command = [sys.executable, "-m", "lightning_devcheck", "run", "--format", "json", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize(
    ("argument", "status", "rules"),
    [("right", 0, []), ("cpu", 1, ["loss-device"]), ("cut", 1, ["detached-loss"])],
)
def test_a_plain_loop(tmp_path, argument, status, rules):
    """A loop is checked without a Trainer; what is wrong decides the exit code."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    result = run(script, argument)
    assert result.returncode == status, result.stderr
    report = json.loads(result.stdout)
    assert [finding["rule"] for finding in report["findings"]] == rules
    assert [finding["name"] for finding in report["findings"]] == ["loss"] * len(rules)
    assert report["checked"]["backwards"] == (1 if argument == "cut" else 3)
    assert "not recognized" not in result.stderr


def test_a_program_that_trains_nothing(tmp_path):
    """Without fit and without a backward nothing was checked, as before."""
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    result = run(script, "idle")
    assert result.returncode == 2
    assert "nothing was checked" in result.stderr


@pytest.mark.parametrize(("where", "rules"), [("cuda:{rank}", []), ("cuda:0", ["wrong-rank-device"])])
def test_ranks_by_hand(tmp_path, where, rules):
    """Each rank reports; two that train on one device are told, of the second one."""
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    result = run(script, where, str(tmp_path / "store"))
    report = json.loads(result.stdout)
    assert [finding["rule"] for finding in report["findings"]] == rules, result.stderr
    assert report["checked"]["backwards"] == 4
    assert report["world_size"] == 2
    for finding in report["findings"]:
        assert (finding["name"], finding["global_rank"], finding["expected"]) == ("net", 1, "cuda:1")
