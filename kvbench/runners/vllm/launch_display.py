"""A server's command line and environment as they may be shown and kept."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

from kvbench.config.secrets import mask_command, mask_value
from kvbench.runners.vllm.tiers import Launch

_INHERITED = re.compile(r"^(?:VLLM|LMCACHE|HF|CUDA|NCCL|OMP|KMP|GOMP|MKL|TORCH|PYTHON)_|^(?:LD_PRELOAD|PYTHONHASHSEED|PYTHONPATH)$")
"""What a server takes from the environment that kvbench was started in and that can change what is measured."""


def describe_launch(launch: Launch) -> dict[str, Any]:
    """``command`` as a list, ``environment`` as set for it, and ``inherited``: what else can matter; secrets are ``***``."""
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.match(name) and name not in launch.environment}
    return {
        "command": mask_command(launch.command),
        "environment": {name: mask_value(name, value) for name, value in sorted(launch.environment.items())},
        "inherited": {name: mask_value(name, value) for name, value in sorted(inherited.items())},
    }


def shell_line(launch: Launch) -> str:
    """The launch as a line for a shell; secrets are ``***``."""
    environment = [f"{name}={shlex.quote(mask_value(name, value))}" for name, value in launch.environment.items()]
    return " ".join([*environment, shlex.join(mask_command(launch.command))])
