import pytest

from octavo.engine.cache_key import block_key, encode_fields, root_key, sha256


def test_fields_differ_by_name_type_value_number_and_order():
    """F37: a salt cannot imitate an adapter, nor two fields one."""
    variants = [
        [],
        [("adapter", "a")],
        [("tenant_salt", "a")],
        [("adapter", b"a")],
        [("adapter", "1")],
        [("adapter", 1)],
        [("adapter", "a"), ("adapter_revision", 1)],
        [("adapter", "a"), ("adapter_revision", 2)],
        [("adapter_revision", 1), ("adapter", "a")],
        [("adapter", "aadapter_revision1")],
        [("adap", "tera")],
        [("adapter", ""), ("a", "")],
        [("image", sha256(b"1"))],
        [("image", sha256(b"1")), ("image", sha256(b"1"))],
    ]
    encoded = [encode_fields(fields) for fields in variants]
    assert len(set(encoded)) == len(variants)


def test_a_field_of_another_type_is_refused_by_name():
    for value in (True, 1.0, None):
        with pytest.raises(ValueError, match="adapter"):
            encode_fields([("adapter", value)])


def test_a_lone_surrogate_has_bytes_too():
    assert encode_fields([("salt", "\ud800")]) != encode_fields([("salt", "?")])


def test_block_keys_depend_on_parent_and_tokens():
    parent = sha256(root_key(b""))
    keys = {
        block_key(parent, (1, 2)),
        block_key(parent, (1, 3)),
        block_key(parent, (1,)),
        block_key(sha256(b""), (1, 2)),
        block_key(parent, (258, 0)),
    }
    assert len(keys) == 5
