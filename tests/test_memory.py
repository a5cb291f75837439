"""Memory and cores on file trees that look like machines, containers and jails."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.memory import (
    KV_SHARE,
    CoreFacts,
    MemoryFacts,
    core_facts,
    default_kv_bytes,
    memory_facts,
    resident_bytes,
)

MIB = 2**20
MEMINFO = "MemTotal:       24000 kB\nMemFree:         1000 kB\nMemAvailable:   20000 kB\nHugePages_Total:   0\n"


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_host_without_control_groups_is_limited_by_available_memory(tmp_path: Path) -> None:
    facts = memory_facts(plant(tmp_path, {"proc/meminfo": MEMINFO}))
    assert facts == MemoryFacts(24000 * 1024, 20000 * 1024, None, None)
    assert facts.free == 20000 * 1024
    assert facts.limited_by == "host"


def test_nothing_known_is_no_error(tmp_path: Path) -> None:
    assert memory_facts(tmp_path).free is None
    assert core_facts(tmp_path, affinity=3).usable == 3
    assert resident_bytes(tmp_path) is None


def test_v2_limit_counts_reclaimable_cache_as_free(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user.slice/app"
    stat = f"anon {2 * MIB}\ninactive_file {3 * MIB}\nactive_file {1 * MIB}\nslab_reclaimable {MIB}\n"
    root = plant(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/user.slice/app\n",
            f"{group}/memory.max": f"{10 * MIB}\n",
            f"{group}/memory.current": f"{8 * MIB}\n",
            f"{group}/memory.stat": stat,
        },
    )
    facts = memory_facts(root)
    assert facts.cgroup_limit == 10 * MIB
    assert facts.cgroup_free == facts.free == 7 * MIB
    assert facts.limited_by == "cgroup"


def test_v2_tighter_parent_decides_and_max_means_none(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.current": "5\n",
            "sys/fs/cgroup/a/memory.max": "1000\n",
            "sys/fs/cgroup/a/memory.current": "400\n",
        },
    )
    assert memory_facts(root).cgroup_free == 600


def test_v2_in_a_container_whose_own_path_is_not_mounted(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../host/path\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "100\n",
        },
    )
    assert memory_facts(root).cgroup_free == 900


def test_v1_limit_and_its_unlimited_number(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/abc"
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
            f"{group}/memory.limit_in_bytes": "5000\n",
            f"{group}/memory.usage_in_bytes": "3000\n",
            f"{group}/memory.stat": "cache 1000\ntotal_inactive_file 600\ntotal_active_file 400\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "99999\n",
        },
    )
    facts = memory_facts(root)
    assert (facts.cgroup_limit, facts.cgroup_free) == (5000, 3000)


def test_group_over_its_limit_has_nothing_free(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "1000\n",
            "sys/fs/cgroup/memory.current": "1200\n",
        },
    )
    assert memory_facts(root).cgroup_free == 0


@pytest.mark.parametrize(
    ("quota", "affinity", "usable"),
    [("200000 100000", 8, 2), ("150000 100000", 8, 1), ("50000 100000", 8, 1), ("max 100000", 8, 8)],
)
def test_v2_quota_of_cores(tmp_path: Path, quota: str, affinity: int, usable: int) -> None:
    root = plant(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota + "\n"})
    assert core_facts(root, affinity).usable == usable


def test_v1_quota_under_a_joint_mount(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/cpu,cpuacct/job"
    root = plant(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/job\n",
            f"{group}/cpu.cfs_quota_us": "300000\n",
            f"{group}/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    facts = core_facts(root, affinity=17)
    assert (facts.quota, facts.usable) == (3.0, 3)
    assert facts.reason == "cgroup quota of 3 CPUs"


def test_affinity_is_a_reason() -> None:
    assert CoreFacts(online=8, affinity=2, quota=None).reason == "affinity: 2 of 8 CPUs"
    assert CoreFacts(online=8, affinity=2, quota=4.0).usable == 2


def test_default_kv_cap_is_a_share_of_what_is_free_and_never_more_than_useful() -> None:
    facts = MemoryFacts(100, 100 * MIB, None, 60 * MIB)
    assert default_kv_bytes(facts, useful_bytes=10**12) == int(60 * MIB * KV_SHARE)
    assert default_kv_bytes(facts, useful_bytes=MIB) == MIB
    assert default_kv_bytes(MemoryFacts(None, None, None, None), 10**12) == 2**30


def test_this_machine_has_memory_and_a_core() -> None:
    assert (memory_facts().free or 1) > 0
    assert core_facts().usable >= 1
