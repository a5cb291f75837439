"""What contiguous pieces would take."""

from __future__ import annotations

import pytest

from octavo.observe.reservation import Reservation, contiguous_reservation


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], Reservation(0, 0)),
        ([1], Reservation(100, 1)),
        ([2, 3, 4, 5], Reservation(400, 2 + 4 + 4 + 8)),
        ([64, 65], Reservation(200, 64 + 100)),
    ],
)
def test_reservations(lengths: list[int], expected: Reservation) -> None:
    assert contiguous_reservation(lengths, max_model_len=100) == expected


def test_every_kv_group_takes_its_own() -> None:
    assert contiguous_reservation([5], max_model_len=32, num_groups=2) == Reservation(64, 16)
