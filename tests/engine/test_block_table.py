from types import SimpleNamespace

from octavo.engine.block_table import UNCHANGED, BlockTable, BlockTableRows


def holder(rows, *tables):
    result = SimpleNamespace(tables=tuple(BlockTable(list(t)) for t in tables), row=-1, changed_from=UNCHANGED)
    rows.change(result, 0)
    return result


def test_rows_mirror_tables_and_are_written_only_where_these_change():
    rows = BlockTableRows(2, 4)
    a, b = holder(rows, [1, 2], [3]), holder(rows, [4], [5, 6, 7])
    first, second = rows.gather([a, b], 3)
    assert first.tolist() == [[1, 2, -1], [4, -1, -1]] and second.tolist() == [[3, -1, -1], [5, 6, 7]]
    assert first.flags.c_contiguous and a.changed_from == UNCHANGED
    a.tables[0].blocks += [8]
    assert rows.gather([b, a], 3)[0].tolist() == [[4, -1, -1], [1, 2, -1]], "nobody said that it changed"
    assert not rows.have_changed
    rows.change(a, 2)
    assert rows.have_changed and rows.written(a) is None
    third = rows.gather([b, a], 3)[0]
    assert [row[:3].tolist() for row in rows.written(a)] == [[1, 2, 8], [3, -1, -1]]
    assert third.tolist() == [[4, -1, -1], [1, 2, 8]]
    assert rows.gather([b, a], 3)[0] is third, "nothing has changed"
    assert rows.gather([b, a], 2)[0].tolist() == [[4, -1], [1, 2]]
    assert first.tolist() == [[1, 2, -1], [4, -1, -1]], "a step keeps what it got"


def test_a_row_is_clean_for_its_next_owner():
    rows = BlockTableRows(1, 1)
    a = holder(rows, range(9))
    rows.gather([a], 9)
    rows.free(a)
    rows.free(a)
    b, gone = holder(rows, [7]), holder(rows, [8])
    rows.free(gone)
    assert rows.gather([b], 3)[0].tolist() == [[7, -1, -1]] and a.row == -1


def test_rows_grow_with_the_longest_table():
    rows = BlockTableRows(2, 2)
    a = holder(rows, range(40), [1])
    first, second = rows.gather([a], 20)
    assert first.tolist() == [list(range(20))] and second.tolist() == [[1] + [-1] * 19]
    assert rows.gather([a], 100)[0].tolist() == [[*range(40), *[-1] * 60]]
