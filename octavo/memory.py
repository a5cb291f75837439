"""What the machine really has for this process: memory and cores, as the host and the control groups limit
them.

Every function takes the root of a file tree that holds /proc and /sys, so it can be tried on a tree made for
a test. A file that is not there or cannot be read means "no limit": a laptop without control groups is the
common case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KV_SHARE = 0.5
"""The part of the free memory that KV blocks may take where the user names no cap. The rest stays for
activations, for the page cache that holds the mapped weights, and for other processes. KV memory is committed
on demand, not at once."""

_UNLIMITED = 2**60
"""Version 1 control groups say "no limit" with a number near 2^63."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Memory in bytes; None where there is no such limit or it is unknown."""

    total: int | None
    """Of the host"""
    available: int | None
    """Of the host: free, or reclaimable without swapping"""
    cgroup_limit: int | None
    """The tightest limit of the process's control groups"""
    cgroup_free: int | None
    """The least that any of these groups has left below its limit, reclaimable cache counted as free"""

    @property
    def free(self) -> int | None:
        """What this process may still take."""
        known = [value for value in (self.available, self.cgroup_free) if value is not None]
        return min(known) if known else None

    @property
    def limited_by(self) -> str:
        """ "cgroup" or "host": whose limit decides."""
        if self.cgroup_free is not None and self.free == self.cgroup_free:
            return "cgroup"
        return "host"


@dataclass(frozen=True, slots=True)
class CoreFacts:
    """Logical CPUs of the host, those this process may run on, and the quota in CPUs (None: no quota)."""

    online: int
    affinity: int
    quota: float | None

    @property
    def usable(self) -> int:
        """Threads worth starting: a fraction of a core left over is not a core."""
        if self.quota is None:
            return self.affinity
        return max(1, min(self.affinity, int(self.quota + 1e-6)))

    @property
    def reason(self) -> str:
        """Why `usable` is what it is."""
        if self.quota is not None and self.usable < self.affinity:
            return f"cgroup quota of {self.quota:g} CPUs"
        if self.affinity < self.online:
            return f"affinity: {self.affinity} of {self.online} CPUs"
        return "all CPUs of the machine"


def memory_facts(root: Path = Path("/")) -> MemoryFacts:
    """Reads /proc/meminfo and the memory control groups of both versions below `root`."""
    meminfo = _key_values(root / "proc/meminfo")
    groups = [*_memory_groups_v2(root), *_memory_groups_v1(root)]
    return MemoryFacts(
        total=_kib(meminfo, "MemTotal:"),
        available=_kib(meminfo, "MemAvailable:"),
        cgroup_limit=min((limit for limit, _ in groups), default=None),
        cgroup_free=min((max(0, limit - used) for limit, used in groups), default=None),
    )


def core_facts(root: Path = Path("/"), affinity: int | None = None) -> CoreFacts:
    """Reads the CPU quotas of both control group versions below `root`; `affinity` None asks the system."""
    if affinity is None:
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [*_cpu_quotas_v2(root), *_cpu_quotas_v1(root)]
    online = max(affinity, os.cpu_count() or 1)
    return CoreFacts(online=online, affinity=affinity, quota=min(quotas, default=None))


def default_kv_bytes(facts: MemoryFacts, useful_bytes: int) -> int:
    """The KV cap where the user names none: KV_SHARE of what is free, at most what can be used at all.

    `useful_bytes`: what max_num_seqs sequences of max_model_len tokens take. Where nothing is known about the
    memory it is 1 GiB, a size that every machine that runs a language model has.
    """
    free = facts.free
    share = 2**30 if free is None else int(free * KV_SHARE)
    return min(share, useful_bytes)


def resident_bytes(root: Path = Path("/"), pid: int | str = "self") -> int | None:
    """Resident memory of a process; None where the system does not say."""
    return _kib(_key_values(root / f"proc/{pid}/status"), "VmRSS:")


def _memory_groups_v2(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, bytes in use without reclaimable cache) of each group from the process's own up to the root."""
    for group in _group_directories(root, controller=None):
        limit = _number(group / "memory.max")
        used = _number(group / "memory.current")
        if limit is None or used is None:
            continue
        stat = _key_values(group / "memory.stat")
        cache = sum(stat.get(key, 0) for key in ("inactive_file", "active_file", "slab_reclaimable"))
        yield limit, max(0, used - cache)


def _memory_groups_v1(root: Path) -> Iterator[tuple[int, int]]:
    for group in _group_directories(root, controller="memory"):
        limit = _number(group / "memory.limit_in_bytes")
        used = _number(group / "memory.usage_in_bytes")
        if limit is None or used is None or limit >= _UNLIMITED:
            continue
        stat = _key_values(group / "memory.stat")
        cache = sum(stat.get(key, 0) for key in ("total_inactive_file", "total_active_file"))
        yield limit, max(0, used - cache)


def _cpu_quotas_v2(root: Path) -> Iterator[float]:
    for group in _group_directories(root, controller=None):
        words = _text(group / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            yield int(words[0]) / int(words[1])


def _cpu_quotas_v1(root: Path) -> Iterator[float]:
    for group in _group_directories(root, controller="cpu"):
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota is not None and period is not None and quota > 0 and period > 0:
            yield quota / period


def _group_directories(root: Path, controller: str | None) -> Iterator[Path]:
    """The process's group and its ancestors, for a version 1 controller or (None) for version 2.

    Inside a container the path of /proc/self/cgroup is often the host's, and the mounted tree begins at the
    container's own group: directories that are not there are left out, the mount itself always counts.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller is None and number == "0" and names == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller is not None and controller in names.split(","):
            mounts = [root / "sys/fs/cgroup" / name for name in dict.fromkeys((controller, names))]
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..", ".")]
        for mount in mounts:
            for depth in range(len(parts), -1, -1):
                directory = mount.joinpath(*parts[:depth])
                if directory.is_dir():
                    yield directory


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    """The file's one integer; None for "max", for nonsense and where there is no file."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def _key_values(path: Path) -> dict[str, int]:
    """Lines of "key number [unit]"."""
    values = {}
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            values[words[0]] = int(words[1])
    return values


def _kib(values: dict[str, int], key: str) -> int | None:
    return values[key] * 1024 if key in values else None
