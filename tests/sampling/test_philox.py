import pytest

from octavo.sampling.philox import philox4x32, random_bits

KNOWN_ANSWERS = [  # Random123's published vectors for philox4x32 with 10 rounds: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, result):
    assert philox4x32(counter, key) == result


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_native_philox_gives_the_published_answers(counter, key, result):
    native = pytest.importorskip("octavo._native")
    assert tuple(native.philox4x32(list(counter), list(key))) == result


def test_random_bits_differ_by_seed_sequence_and_position():
    streams = [random_bits(*key) for key in [(1, 0, 0), (2, 0, 0), (1 << 40, 0, 0), (1, 1, 0), (1, 0, 1)]]
    assert len(set(streams)) == 5


def test_random_bits_use_all_64_bits():
    ones = zeros = 0
    for position in range(200):
        bits = random_bits(7, 3, position)
        ones |= bits
        zeros |= ~bits
    assert ones == 2**64 - 1
    assert zeros & (2**64 - 1) == 2**64 - 1
