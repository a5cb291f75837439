from octavo.engine.prefix_cache import PrefixCache


def chain(cache, blocks, namespace=b""):
    """Registers one block after the other in group 0; returns the held last node."""
    node = cache.hold_root(namespace)
    for tokens, block in blocks:
        node = cache.extend(node, tokens, cache.digest(node.digest, tokens))
        cache.register(node, 0, block)
    return node


def find(cache, *series, namespace=b""):
    node = cache.root(namespace)
    for tokens in series:
        if node is None:
            return None
        node = cache.find(node, tokens, cache.digest(node.digest, tokens))
    return node


def test_equal_content_is_one_node_with_many_blocks():
    """F32: no later entry hides an earlier one; they go in any order."""
    cache = PrefixCache(1)
    first = chain(cache, [((1, 2), 10), ((3, 4), 11)])
    second = chain(cache, [((1, 2), 20), ((3, 4), 21)])
    assert first is second and list(first.blocks[0]) == [11, 21]
    cache.forget(11)
    assert list(find(cache, (1, 2), (3, 4)).blocks[0]) == [21]
    cache.forget(21)
    cache.forget(10)
    cache.drop(first)
    assert find(cache, (1, 2), (3, 4)) is not None, "still held"
    cache.drop(second)
    assert find(cache, (1, 2), (3, 4)) is None
    cache.forget(20)
    assert cache.num_nodes == cache.num_roots == len(cache) == 0


def test_a_node_stays_as_long_as_it_has_a_child():
    cache = PrefixCache(1)
    node = chain(cache, [((1, 2), 10), ((3, 4), 11)])
    cache.drop(node)
    cache.forget(10)
    assert not find(cache, (1, 2)).blocks[0] and find(cache, (1, 2), (3, 4)) is node
    cache.forget(11)
    assert cache.num_nodes == cache.num_roots == 0


def test_tokens_decide_where_all_hashes_are_equal():
    """F36: a collision is a miss, in the block itself and in its parents."""
    cache = PrefixCache(1, hash_function=lambda data: b"same")
    chain(cache, [((1, 2), 10), ((5, 6), 11)])
    chain(cache, [((3, 4), 20)])
    assert find(cache, (1, 2)).blocks[0] == {10: None}
    assert find(cache, (9, 9)) is None
    assert find(cache, (3, 4), (5, 6)) is None, "same tokens after another parent"
    assert find(cache, (5, 6)) is None
    assert find(cache, (1, 2), (5, 6)).blocks[0] == {11: None}


def test_namespaces_are_compared_by_bytes_not_by_hash():
    cache = PrefixCache(1, hash_function=lambda data: b"same")
    chain(cache, [((1, 2), 10)], namespace=b"a")
    assert find(cache, (1, 2), namespace=b"b") is None
    chain(cache, [((1, 2), 20)], namespace=b"b")
    assert find(cache, (1, 2), namespace=b"b").blocks[0] == {20: None}
