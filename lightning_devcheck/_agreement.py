"""The processes of a run decide together, so that none is left in a collective by one that stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from lightning_devcheck._compat import is_joining
from lightning_devcheck._report import Report, merge_reports

PATIENCE = timedelta(seconds=5)


class Agreement:
    """Tells every process of an error that one of them found, before any of them goes on.

    It talks over gloo, on CPU tensors: the device under suspicion may be the very one that the run's own process group
    needs, and no device is made to wait. A group of its own is made, once, where the run's is another.
    """

    def __init__(self) -> None:
        self._group: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the process group behind: it cannot be pickled, and means nothing in another process."""
        return {"_group": None}

    def reach(self, report: Report, trainer: Any) -> Report:
        """Give every process the reports of all, if one has an error; else each its own.

        Every process must call it at the same backward. It costs one all-reduce of one number, and one gather of the
        reports where there is an error.
        """
        if not can_agree(trainer):
            return report
        if self._group is None:
            # a simulated run speaks NCCL over gloo, and refuses the CPU tensor in its own group as NCCL does
            shared = dist.get_backend() == "gloo" and trainer.strategy.root_device.type == "cpu"
            self._group = dist.group.WORLD if shared else dist.new_group(backend="gloo")
        wrong = torch.tensor(len(report.errors), device="cpu")
        dist.all_reduce(wrong, op=dist.ReduceOp.MAX, group=self._group)
        if not wrong.item():
            return report
        reports: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(reports, report.to_dict(), group=self._group)
        return merge_reports(map(Report.from_dict, reports))

    def wait(self) -> None:
        """Wait until every process has come here: a launcher ends all of them as soon as the first has failed.

        Called after an agreement on an error, by all processes.
        """
        try:
            dist.monitored_barrier(self._group, timeout=PATIENCE)
        except RuntimeError:  # another one is gone, or has no more to say
            return


def can_agree(trainer: Any) -> bool:
    """Whether several processes run and all of them come to the same backward.

    Where a process may run out of data before the others (``torch.distributed.algorithms.Join``) they do not.
    """
    if trainer.world_size == 1 or not dist.is_available() or not dist.is_initialized():
        return False
    return not is_joining(trainer.strategy.model)
