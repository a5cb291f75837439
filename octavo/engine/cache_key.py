"""Keys of the prefix cache: a SHA-256 chain over typed, length-prefixed fields.

    root digest  = hash(fields of the namespace)
    block digest = hash(parent digest, tokens of the block)

Every field says its name, its type and its length, so that no salt can imitate an adapter and no two lists of
fields have the same bytes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence

CacheFields = Sequence[tuple[str, "str | bytes | int"]]
"""(name, value) in order: ("adapter", "sql"), ("adapter_revision", 3), ("tenant_salt", "..."), ("image",
digest)"""

HashFunction = Callable[[bytes], bytes]


def sha256(data: bytes) -> bytes:
    """The hash of the chain: 32 bytes."""
    return hashlib.sha256(data).digest()


def encode_fields(fields: Iterable[tuple[str, str | bytes | int]]) -> bytes:
    """Bytes that differ wherever names, types, values, their number or their order differ."""
    parts: list[bytes] = []
    for name, value in fields:
        if isinstance(value, bytes):
            tag, data = b"b", value
        elif isinstance(value, str):
            tag, data = b"s", value.encode("utf-8", "surrogatepass")
        elif isinstance(value, int) and not isinstance(value, bool):
            tag, data = b"i", str(value).encode()
        else:
            raise ValueError(f"cache field {name!r}={value!r}: must be str, bytes or int")
        encoded_name = name.encode("utf-8", "surrogatepass")
        parts += (
            len(encoded_name).to_bytes(8, "little"),
            encoded_name,
            tag,
            len(data).to_bytes(8, "little"),
            data,
        )
    return b"".join(parts)


def root_key(namespace: bytes) -> bytes:
    """What is hashed for the digest that a namespace's chains begin with."""
    return b"octavo.namespace" + len(namespace).to_bytes(8, "little") + namespace


def block_key(parent_digest: bytes, tokens: Sequence[int]) -> bytes:
    """What is hashed for a block's digest."""
    data = array("q", tokens).tobytes()
    head = b"octavo.block" + len(parent_digest).to_bytes(8, "little") + parent_digest
    return head + len(data).to_bytes(8, "little") + data
