"""What the machine that runs the tests has."""

from octavo import _native

INSTRUCTION_SETS = [name for name in ("avx2", "avx512_vnni", "avx512_bf16", "amx") if _native.isa_supported(name)]
