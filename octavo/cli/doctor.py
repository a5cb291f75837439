"""`octavo doctor`: what this machine and this installation can do, and why."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_args

import click

from octavo import __version__
from octavo.config import InstructionSet, format_bytes
from octavo.native_library import native_library

PACKAGES = ("numpy", "tokenizers", "jinja2", "click", "tqdm")


@click.command(short_help="Say what this machine can run, and why.")
def doctor() -> None:
    """Print CPU, instruction sets, threads, memory, the native library's state, versions and every executor
    with the reason why it cannot be used. The exit code is 1 where only the slow reference executor is
    left."""
    for title, lines in sections():
        click.echo(title)
        for line in lines:
            click.echo(f"  {line}")
    from octavo.loading import unsupported_reasons

    if unsupported_reasons("native"):
        raise SystemExit(1)


def sections() -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of the report."""
    from octavo.bench.machine import cpu_model

    yield "versions", version_lines()
    yield "cpu", [f"{cpu_model()} ({platform.machine()}, {platform.system()})", *instruction_set_lines()]
    yield "threads", thread_lines()
    yield "memory", memory_lines()
    yield "native library", native_lines()
    yield "executors", executor_lines()
    yield "models", model_lines()


def version_lines() -> list[str]:
    lines = [f"octavo {__version__}, Python {platform.python_version()}"]
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} MISSING")
    return [*lines, ", ".join(found)]


def instruction_set_lines() -> list[str]:
    try:
        native = native_library()
    except ImportError:
        return ["instruction sets: unknown, the native library does not load"]
    found = [name for name in get_args(InstructionSet) if native.isa_supported(name)]
    missing = [name for name in get_args(InstructionSet) if name not in found]
    if not found:
        return ["instruction sets found: none that the native executor can use (it needs avx2)"]
    chosen = native.detect_isa()  # the best that is not emulated
    real = found[: found.index(chosen) + 1]
    lines = [f"instruction sets found: {', '.join(real)}; chosen: {chosen}"]
    if found != real:
        lines.append(f"emulated in this build, for tests of its kernels: {', '.join(found[len(real) :])}")
    if missing:
        lines.append(f"not on this machine: {', '.join(missing)}")
    return lines


def thread_lines() -> list[str]:
    from octavo.memory import core_facts

    facts = core_facts()
    return [f"{facts.usable} chosen: {facts.reason}"]


def memory_lines() -> list[str]:
    from octavo.memory import KV_SHARE, memory_facts

    facts = memory_facts()

    def size(value: int | None) -> str:
        return "unknown" if value is None else format_bytes(value)

    lines = [f"host: {size(facts.total)}, available {size(facts.available)}"]
    if facts.cgroup_limit is None:
        lines.append("control group: no limit")
    else:
        lines.append(f"control group: limit {size(facts.cgroup_limit)}, free {size(facts.cgroup_free)}")
    if facts.free is not None:
        lines.append(
            f"KV memory without --kv-cache-memory: up to {format_bytes(facts.free * KV_SHARE)} "
            f"({KV_SHARE:.0%} of what the {facts.limited_by} has free, committed on demand)"
        )
    return lines


def native_lines() -> list[str]:
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    found = "compiler: none found (needed only to build from source)" if compiler is None else f"compiler: {compiler}"
    try:
        native = native_library()
    except ImportError as error:
        return [f"not usable: {error}", found]
    return [f"built: {native.__file__}", found]


def executor_lines() -> list[str]:
    from octavo.loading import unsupported_reasons

    lines = []
    for name, what in (
        ("native", "fast; KV in bfloat16, float32 or int8"),
        ("reference", "slow, float32; KV in float32 or int8"),
    ):
        reasons = unsupported_reasons(name)
        lines.append(f"{name}: " + (f"usable ({what})" if not reasons else "not usable: " + "; ".join(reasons)))
    return lines


def model_lines() -> list[str]:
    home = Path(os.environ.get("OCTAVO_HOME") or Path.home() / ".cache" / "octavo")
    files = sorted(home.rglob("*.gguf")) if home.is_dir() else []
    lines = [f"cache: {home}"]
    return lines + [f"{path.name}, {format_bytes(path.stat().st_size)}" for path in files if path.is_file()]
