"""Every test leaves torch, torch.distributed and the environment as it found them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import lightning.pytorch  # noqa: F401  importing either namespace wraps torch.compile, once
import pytest
import pytorch_lightning  # noqa: F401
import torch
import torch.distributed as dist
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# Lightning's launcher, seed_everything, torch's compiler and matplotlib set these for the life of the process
LIFELONG_VARIABLES = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE", "GLOO_SOCKET_IFNAME"}
LIFELONG_VARIABLES |= {"PL_GLOBAL_SEED", "PL_SEED_WORKERS", "PYTEST_CURRENT_TEST", "KINETO_LOG_LEVEL"}
LIFELONG_VARIABLES |= {"KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "CRC32C_SW_MODE", "MPLBACKEND"}
LIFELONG_VARIABLES |= {
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "CUDA_DEVICE_ORDER",
}
WATCHED = (torch, torch.Tensor, torch.cuda, torch.accelerator, dist, dist.distributed_c10d)


def _attributes() -> dict[tuple[str, str], Any]:
    return {
        (getattr(owner, "__name__", repr(owner)), name): value
        for owner in WATCHED
        for name, value in list(vars(owner).items())
        if callable(value) or isinstance(value, property)
    }


def _switches() -> dict[str, Any]:
    return {
        "dispatch modes": len(_get_current_dispatch_mode_stack()),
        "function modes": len(_get_current_function_mode_stack()),
        "default device": torch.empty(0).device,
        "default dtype": torch.get_default_dtype(),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "gradient mode": torch.is_grad_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
        "module conversion": torch.__future__.get_overwrite_module_params_on_conversion(),
        "module hooks": len(torch.nn.modules.module._global_forward_hooks),
        "process group": dist.is_available() and dist.is_initialized(),
        "environment": {k: v for k, v in os.environ.items() if k not in LIFELONG_VARIABLES},
    }


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Compare every switch and every function of torch that a simulation replaces, before and after the test."""
    torch.manual_seed(0)
    switches, attributes = _switches(), _attributes()
    yield
    after = _attributes()
    changed = [key for key, value in attributes.items() if after.get(key) is not value]
    assert not changed, f"left patched: {changed}"
    assert _switches() == switches
