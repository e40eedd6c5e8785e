"""Two gloo processes; the second leaves before their collective: ``python left_alone.py RANK FILE``."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from lightning_devcheck import explain

if __name__ == "__main__":
    rank, file = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", f"file://{file}", timeout=timedelta(seconds=20), rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    if rank == 0:
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            sys.stdout.write(f"{error}\n{explain(error)}\n")
