import pytest
from byte_vocabulary import CONTROL, EOS, OTHER_EOS, allowed, wanted, word

ENDS = {EOS, OTHER_EOS}


def advance(constraint, text):
    for byte in text.encode():
        constraint.advance(byte)


def test_the_end_is_allowed_where_the_output_is_complete_and_forced_where_it_can_only_end(compiler):
    constraint = compiler.constraint(wanted(choice=["yes", "yes please"]))
    assert allowed(constraint) == {ord("y"), word(b"yes")}
    constraint.advance(word(b"yes"))
    assert allowed(constraint) == {ord(" "), word(b" please"), *ENDS}
    constraint.advance(word(b" please"))
    assert allowed(constraint) == ENDS
    constraint.advance(OTHER_EOS)


def test_a_fork_goes_its_own_way(compiler):
    constraint = compiler.constraint(wanted(regex="(ab|cd)+"))
    advance(constraint, "ab")
    other = constraint.fork()
    advance(constraint, "c")
    assert allowed(constraint) == {ord("d")} and allowed(other) == {ord("a"), ord("c"), *ENDS}
    advance(other, "a")
    assert allowed(constraint) == {ord("d")} and allowed(other) == {ord("b")}


def test_min_tokens_and_ignore_eos_hold_the_end_back_while_anything_else_is_allowed(compiler):
    constraint = compiler.constraint(wanted({"min_tokens": 2, "stop_token_ids": [ord("c")]}, regex="[abc]{1,3}"))
    assert allowed(constraint) == {ord("a"), ord("b")}
    advance(constraint, "a")
    assert allowed(constraint) == {ord("a"), ord("b")}
    advance(constraint, "a")
    assert allowed(constraint) == {ord("a"), ord("b"), ord("c"), *ENDS}
    unending = compiler.constraint(wanted({"ignore_eos": True}, regex="a{1,2}"))
    advance(unending, "a")
    assert allowed(unending) == {ord("a")}
    advance(unending, "a")
    assert allowed(unending) == ENDS
    only_stops = compiler.constraint(wanted({"min_tokens": 9, "stop_token_ids": [ord("c")]}, regex="c"))
    assert allowed(only_stops) == {ord("c")}


def test_a_token_that_is_not_allowed_is_an_error(compiler):
    constraint = compiler.constraint(wanted(json_object=True))
    with pytest.raises(ValueError, match=r"^structured_outputs: .{1,320}$"):
        advance(constraint, "x")


def test_control_tokens_are_no_text_unless_a_grammar_names_them(compiler):
    assert CONTROL not in allowed(compiler.constraint(wanted(regex="(?s:.*)")))
    constraint = compiler.constraint(wanted(regex="<call>"))
    assert allowed(constraint) == {ord("<"), word(b"<call>")}
    named = compiler.constraint(wanted(grammar=f"start: <[{CONTROL}]> /[0-9]/"))
    assert allowed(named) == {CONTROL}
    named.advance(CONTROL)
    assert allowed(named) == set(range(ord("0"), ord("9") + 1))


def test_bytes_of_half_characters_are_allowed_in_order(compiler):
    constraint = compiler.constraint(wanted(choice=["ä"]))
    assert allowed(constraint) == {0xC3}
    constraint.advance(0xC3)
    assert allowed(constraint) == {0xA4}


def test_json_has_no_blanks(compiler):
    constraint = compiler.constraint(wanted(json={"type": "object", "required": ["a"], "properties": {"a": {}}}))
    assert allowed(constraint) == {ord("{"), word(b'{"')}
    advance(constraint, '{"a"')
    assert allowed(constraint) == {ord(":")}
    advance(constraint, ":")
    assert not allowed(constraint) & set(b" \t\r\n")
    advance(constraint, "[1")
    assert not allowed(constraint) & set(b" \t\r\n")
    advance(constraint, "]}")
    assert allowed(constraint) == ENDS
