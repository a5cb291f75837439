"""Facts of the machine that belong beside every figure."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.memory import core_facts, memory_facts
from octavo.native_library import best_instruction_set


def cpu_model(root: Path = Path("/")) -> str:
    """The CPU's name as the system gives it."""
    try:
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown CPU"


def machine_facts() -> dict[str, Any]:
    """CPU, instruction set, cores, memory, load and versions, for a JSON report."""
    memory = memory_facts()
    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "instruction_set": best_instruction_set(),
        "cores": core_facts().usable,
        "memory_bytes": memory.total,
        "memory_free_bytes": memory.free,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "octavo": __version__,
    }
