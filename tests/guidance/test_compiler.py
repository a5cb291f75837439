import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from byte_vocabulary import EOS, VOCAB_SIZE, Bytes, allowed, wanted
from llguidance import LLParserLimits

from octavo import SamplingParams
from octavo.guidance import GrammarCompiler
from octavo.guidance import compiler as compiler_module


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


BAD = [
    ({"regex": "(a"}, "unclosed group"),
    ({"regex": "(?=a)b"}, "look-around"),
    ({"regex": "(" * 60_000}, "invalid regex"),
    ({"regex": "[^\\x00-\\U0010FFFF]"}, "no token of the model|unsatisfiable|empty"),
    ({"grammar": 'start: "a'}, "1\\("),
    ({"grammar": 'begin: "a"'}, "start"),
    ({"grammar": "start: x"}, 'unknown name: "x"'),
    ({"grammar": "start: " + "(" * 60_000}, "too deeply nested"),
    ({"grammar": 'start: A\nA: A "x" | "y"'}, "circular reference"),
    ({"grammar": 'start: <|nobody|> "a"'}, "nobody"),
    ({"grammar": "start: " + ' ("a"|"b"|x)*' * 1200 + '\nx: "a" x | ""'}, "Too many items|too big"),
    ({"json": {"type": "strin"}}, "Invalid type: strin"),
    ({"json": {"type": 3}}, "type must be"),
    ({"json": {"type": "object", "properties": 3}}, "properties must be an object"),
    ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
    ({"json": {"not": {"type": "string"}}}, '"not"'),
    ({"json": {"if": {}, "then": {}}}, '"if", "then"'),
    ({"json": {"type": "string", "format": "of-ours"}}, "of-ours"),
    ({"json": {"type": "string", "pattern": "(?!a)b"}}, "look-around"),
    ({"json": {"$ref": "https://example.com/schema.json"}}, "example.com"),
    ({"json": {"$ref": "#/$defs/nobody"}}, "nobody"),
    ({"json": {"$ref": "#"}}, "no token of the model"),
    ({"json": {"oneOf": [{"minLength": 2}, {"maxLength": 4}]}}, "oneOf"),
    ({"json": {"type": "integer", "minimum": 5, "maximum": 4}}, "minimum"),
    ({"json": nested(70)}, "nests"),
    ({"json": {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(8)]} for i in range(8)]}}, "large"),
    ({"json": {"type": "object", "properties": {f"p{i}": {} for i in range(6000)}, "required": []}}, "6000"),
]


@pytest.mark.parametrize(("form", "why"), BAD, ids=[str(form)[:30] for form, _ in BAD])
def test_a_grammar_that_is_bad_or_a_bomb_is_refused_in_time_with_the_reason(compiler, form, why):
    started = time.process_time()
    with pytest.raises(ValueError, match=rf"^structured_outputs.*({why})") as caught:
        compiler.constraint(wanted(**form))
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    assert time.process_time() - started < 2
    assert allowed(compiler.constraint(wanted(choice=["a"]))) == {ord("a")}


def test_each_request_has_a_matcher_of_its_own_and_the_next_one_is_compiled_ahead(compiler, monkeypatch):
    texts = []
    compile_now = compiler._compile_in_limits
    monkeypatch.setattr(compiler, "_compile_in_limits", lambda text: (texts.append(text), compile_now(text))[1])
    params = wanted(json=nested(5))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: compiler.constraint(params), range(50)))
    made[0].advance(ord("{"))
    assert all(allowed(constraint) == allowed(made[1]) != allowed(made[0]) for constraint in made[1:])
    compiler.check(params)
    compiler._work(int).result()  # what was queued before is done
    assert compiler.submit(params).done() and len(set(texts)) == 1 and 50 < len(texts) <= 52


def test_a_grammar_is_checked_and_compiled_once_before_its_first_request(compiler, monkeypatch):
    texts = []
    compile_now = compiler._compile_in_limits
    monkeypatch.setattr(compiler, "_compile_in_limits", lambda text: (texts.append(text), compile_now(text))[1])
    compiler.check(SamplingParams())
    for _ in range(3):
        compiler.check(wanted(choice=["a"]))
    assert compiler.submit(wanted(choice=["a"])).done() and len(texts) == 1
    for _ in range(3):
        with pytest.raises(ValueError, match="unclosed group"):
            compiler.check(wanted(regex="(a"))
        with pytest.raises(ValueError, match="unclosed group"):
            compiler.constraint(wanted(regex="(a"))
    assert len(texts) == 2


def test_one_that_fails_in_the_middle_does_not_touch_others_of_the_same_grammar(compiler, monkeypatch):
    limits = LLParserLimits(max_lexer_states=200, verbose_errors=False)
    monkeypatch.setattr(compiler_module, "_limits", lambda: limits)
    params = wanted(regex="(a|b)*a(a|b){20}")
    bystander, other = compiler.constraint(params), compiler.constraint(params)
    with pytest.raises(ValueError, match=r"^structured_outputs: .*too many states"):
        for byte in random.Random(1).choices(b"ab", k=1000):
            other.advance(byte)
    bystander.advance(ord("a"))
    assert allowed(bystander) == {ord("a"), ord("b")}


def test_few_grammars_are_remembered_the_latest_used_ones(compiler, monkeypatch):
    monkeypatch.setattr(compiler_module, "MAX_REMEMBERED", 3)
    for text in ("a", "b", "c", "a", "d"):
        compiler.constraint(wanted(choice=[text]))
    compiler._work(int).result()
    assert [text.split('"')[1] for text in compiler._remembered] == ["c", "a", "d"]
    monkeypatch.setattr(compiler_module, "MAX_REMEMBERED_BYTES", 2000)
    compiler.constraint(wanted(choice=["x" * 5000]))
    assert len(compiler._remembered) == 1


def test_who_waits_too_long_is_refused_and_the_next_one_served(compiler, monkeypatch):
    compiler.constraint(wanted(choice=["a"]))
    monkeypatch.setattr(compiler_module, "COMPILE_SECONDS", 0.05)
    compile_now = compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda text: (time.sleep(0.2), compile_now(text))[1])
    with pytest.raises(ValueError, match=r"was not compiled within 0\.05 s"):
        compiler.constraint(wanted(choice=["b"]))
    monkeypatch.setattr(compiler_module, "COMPILE_SECONDS", 20)
    assert allowed(compiler.constraint(wanted(choice=["c"]))) == {ord("c")}


def test_a_compiler_that_breaks_down_is_an_error_of_the_grammar(compiler, monkeypatch):
    class Panic(BaseException):
        pass

    def panic(text):
        raise Panic("index out of bounds")

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile_in_limits", panic)
        with pytest.raises(ValueError, match="compiler failed: index out of bounds"):
            compiler.constraint(wanted(choice=["a"]))
    assert allowed(compiler.constraint(wanted(choice=["a"]))) == {ord("a")}


def test_nothing_is_built_before_the_first_grammar():
    class Untouched(Bytes):
        def token_bytes(self, token_id):
            raise AssertionError("looked at")

    compiler = GrammarCompiler(Untouched(), VOCAB_SIZE, [EOS])
    assert compiler.constraint(SamplingParams()) is None
    compiler.close()


def test_a_tokenizer_without_bytes_and_a_model_without_an_end_are_refused():
    class NoBytes(Bytes):
        def token_bytes(self, token_id):
            return None

    for tokenizer, ends, why in ((NoBytes(), [EOS], "which bytes"), (Bytes(), [], "no end-of-sequence token")):
        compiler = GrammarCompiler(tokenizer, VOCAB_SIZE, ends)
        with pytest.raises(ValueError, match=f"^structured_outputs: .*{why}"):
            compiler.constraint(wanted(json_object=True))
        compiler.close()
