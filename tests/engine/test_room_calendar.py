from types import SimpleNamespace

from octavo.engine.room_calendar import RoomCalendar


def test_each_sequence_is_due_at_the_step_that_it_has_no_room_for():
    ends = (7, 8, 10, 16)
    sequences = [SimpleNamespace(name=i, num_computed_tokens=7, writable_end=end) for i, end in enumerate(ends)]
    calendar = RoomCalendar(sequences)
    found = []
    for step in range(12):
        due = calendar.due()
        found += [(step, sequence.name) for sequence in due]
        for sequence in due:
            sequence.writable_end += 4
            calendar.put(sequence)
        calendar.advance()
        for sequence in sequences:
            sequence.num_computed_tokens += 1
    assert sorted(found) == [(0, 0), (1, 1), (3, 2), (4, 0), (5, 1), (7, 2), (8, 0), (9, 1), (9, 3), (11, 2)]
