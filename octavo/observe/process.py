"""What this process uses."""

from __future__ import annotations

import os
import time
from pathlib import Path


def cpu_seconds() -> float:
    """CPU time of all threads since the process started."""
    return time.process_time()


def resident_bytes() -> int | None:
    """Resident memory; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
