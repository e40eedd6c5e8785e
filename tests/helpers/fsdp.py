"""FSDP 1 on two gloo processes, outside of Lightning, which refuses it on the CPU: ``python fsdp.py [mistake]``."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from lightning_devcheck import check_devices


def train(keep_parameters: bool, mistake: bool) -> list[str]:
    """Three steps; the rules and names of what is found in each."""
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    model = FullyShardedDataParallel(layers, device_id=torch.device("cpu"), use_orig_params=keep_parameters)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        loss = model(torch.ones(2, 4)).pow(2).mean()
        report = check_devices(loss.to("meta") if mistake else loss, model)
        found += [f"{finding.rule} {finding.name}" for finding in report.findings]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return found


def main(rank: int, port: str, mistake: bool) -> None:
    """One rank, with flat parameters and with the module's own: a line for each."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    for keep_parameters in (False, True):
        # in one write: two ranks share the stream
        sys.stdout.write(f"own parameters {keep_parameters}: {train(keep_parameters, mistake)}\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = str(server.getsockname()[1])
    torch.multiprocessing.start_processes(main, args=(free, "mistake" in sys.argv), nprocs=2, start_method="fork")
