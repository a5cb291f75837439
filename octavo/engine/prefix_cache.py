"""The prefix cache: which blocks hold the KV of a given run of tokens, in a given namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from octavo.engine.cache_key import HashFunction, block_key, root_key, sha256
from octavo.engine.sequence_update import TokenLogprob

MOST_COMPARED = 16
"""Nodes that closest() looks at, the newest ones: its work is bounded"""


class PrefixNode:
    """A block's worth of tokens after the tokens of its parent: content, wherever its KV may lie. It may be less than
    a block where a sequence ended; then nothing comes after it.

    Two nodes with the same content never exist at once, so a parent compares by identity: a match of this
    node's tokens below a matched parent is a match of the whole prefix, whatever the hash says.
    """

    __slots__ = ("blocks", "children", "digest", "parent", "scores", "tokens", "uses")

    def __init__(self, parent: PrefixNode | None, tokens: tuple[int, ...], digest: bytes, num_groups: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.digest = digest
        self.blocks: tuple[dict[int, None], ...] = tuple({} for _ in range(num_groups))
        """Per KV group the blocks with this content, computed; any number of them, in order of arrival"""
        self.uses = 0
        """Blocks, children and holders; at 0 the node goes"""
        self.children: dict[int, dict[PrefixNode, None]] = {}
        """By first token, in order of arrival"""
        self.scores: tuple[TokenLogprob | None, ...] | None = None
        """The logprob of each token, where somebody asked for them (None for a prompt's first one)"""


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two series begin with in common."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length


class PrefixCache:
    """Nodes by digest, and the node of each registered block. It never touches reference counts.

    The digest finds, the tokens decide: a bucket may hold several nodes.
    """

    def __init__(self, num_groups: int, hash_function: HashFunction = sha256) -> None:
        self._num_groups = num_groups
        self._hash = hash_function
        self._nodes: dict[bytes, list[PrefixNode]] = {}
        self._roots: dict[bytes, PrefixNode] = {}
        self._root_namespaces: dict[PrefixNode, bytes] = {}
        self._registered: dict[int, tuple[PrefixNode, int]] = {}

    def __len__(self) -> int:
        """Registered blocks."""
        return len(self._registered)

    @property
    def num_nodes(self) -> int:
        """Contents that are known; O(n)."""
        return sum(map(len, self._nodes.values()))

    @property
    def num_roots(self) -> int:
        """Namespaces of which something is known or held."""
        return len(self._roots)

    def hold_root(self, namespace: bytes) -> PrefixNode:
        """The root of a namespace, held: drop() it when done. Namespaces compare by their bytes, not by a
        hash."""
        root = self._roots.get(namespace)
        if root is None:
            root = PrefixNode(None, (), self._hash(root_key(namespace)), self._num_groups)
            self._roots[namespace] = root
            self._root_namespaces[root] = namespace
        root.uses += 1
        return root

    def root_digest(self, namespace: bytes) -> bytes:
        """What the chains of a namespace begin with."""
        return self._hash(root_key(namespace))

    def digest(self, parent_digest: bytes, tokens: tuple[int, ...]) -> bytes:
        """The next digest of a chain."""
        return self._hash(block_key(parent_digest, tokens))

    def root(self, namespace: bytes) -> PrefixNode | None:
        """The root of a namespace where anything of it is known."""
        return self._roots.get(namespace)

    def find(self, parent: PrefixNode, tokens: tuple[int, ...], digest: bytes) -> PrefixNode | None:
        """The node of `tokens` after `parent`."""
        for node in self._nodes.get(digest, ()):
            if node.parent is parent and node.tokens == tokens:
                return node
        return None

    def extend(self, parent: PrefixNode, tokens: tuple[int, ...], digest: bytes) -> PrefixNode:
        """The node of `tokens` after `parent`, made where there is none, and held instead of the parent."""
        node = self.find(parent, tokens, digest)
        if node is None:
            node = PrefixNode(parent, tokens, digest, self._num_groups)
            self._nodes.setdefault(digest, []).append(node)
            parent.children.setdefault(tokens[0], {})[node] = None
            parent.uses += 1
        node.uses += 1
        self.drop(parent)
        return node

    def closest(
        self, parent: PrefixNode, tokens: Sequence[int], usable: Callable[[PrefixNode], bool]
    ) -> tuple[PrefixNode | None, int]:
        """The usable node after `parent` that has most of the first of `tokens` in common, and how many."""
        best, most = None, 0
        for node in islice(reversed(parent.children.get(tokens[0], {})), MOST_COMPARED):
            common = common_length(node.tokens, tokens)
            if common > most and usable(node):
                best, most = node, common
                if common == len(tokens):
                    break
        return best, most

    def hold(self, node: PrefixNode) -> None:
        """One use more: the node stays until it is dropped as often."""
        node.uses += 1

    def drop(self, node: PrefixNode) -> None:
        """One use less; nodes that nothing uses any more go, up the chain."""
        node.uses -= 1
        while node.uses == 0:
            parent = node.parent
            if parent is None:
                del self._roots[self._root_namespaces.pop(node)]
                return
            bucket = self._nodes[node.digest]
            if len(bucket) == 1:
                del self._nodes[node.digest]
            else:
                bucket.remove(node)
            siblings = parent.children[node.tokens[0]]
            if len(siblings) == 1:
                del parent.children[node.tokens[0]]
            else:
                del siblings[node]
            parent.uses -= 1
            node = parent

    def register(self, node: PrefixNode, group: int, block: int) -> None:
        """Makes a computed block findable. A block that is known under this node already stays so."""
        known = self._registered.get(block)
        if known is not None:
            if known != (node, group):
                raise RuntimeError(f"block {block} is registered with other content")
            return
        self._registered[block] = (node, group)
        node.blocks[group][block] = None
        node.uses += 1

    def forget(self, block: int) -> None:
        """The block's content is gone."""
        node, group = self._registered.pop(block)
        del node.blocks[group][block]
        self.drop(node)

    def registered(self) -> dict[int, tuple[PrefixNode, int]]:
        """Block id -> (node, KV group): for those who look on."""
        return self._registered

    def nodes(self) -> list[PrefixNode]:
        """All nodes but roots: for checks."""
        return [node for bucket in self._nodes.values() for node in bucket]

    def roots(self) -> list[PrefixNode]:
        """All roots: for checks."""
        return list(self._roots.values())
