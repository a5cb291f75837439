"""Rendering of templates, their errors and their bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.text.chat_template import ChatTemplate

GOLDENS = json.loads((Path(__file__).parent / "data" / "chat_goldens.json").read_text(encoding="utf-8"))
USER = [{"role": "user", "content": "hi"}]


def render(source, messages=USER, **special):
    return ChatTemplate(source, special).render(messages)


@pytest.mark.parametrize("case", GOLDENS, ids=[case["name"] for case in GOLDENS])
def test_rendering_equals_transformers(case):
    template = ChatTemplate(case["template"], {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.render(case["messages"], case["add_generation_prompt"], case["tools"]) == case["text"]


def test_special_tokens_are_named():
    assert render("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", bos_token="<s>") == "<s>hi"


def test_the_date_can_be_asked_for():
    assert render("{{ strftime_now('%Y') }}").isdigit()


def test_a_refusal_says_the_template_s_reason():
    with pytest.raises(ValueError, match="refused the messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_bad_syntax_is_refused_when_loading():
    with pytest.raises(ValueError, match="cannot be read"):
        ChatTemplate("{% for %}", {})


@pytest.mark.parametrize("source", ["{{ 1 / 0 }}", "{{ nothing.at.all }}", "{{ messages[0].content.nope() }}"])
def test_other_failures_are_value_errors(source):
    with pytest.raises(ValueError, match="chat template failed"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for x in range(99999999) %}{% endfor %}",
    ],
)
def test_the_sandbox_holds(source):
    with pytest.raises(ValueError, match="chat template"):
        render(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "loops more than",
        ),
        (
            "{% for a in range(9999) %}{% for b in range(9999) | map('abs') %}{% endfor %}{% endfor %}",
            "loops more",
        ),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "calls itself without end"),
        ("{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}", "writes more than"),
        ("{{ 'x' * 999999999 }}", "longer than"),
        ("{{ [1] * 999999999 }}", "longer than"),
        (
            "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "longer than",
        ),
        (
            "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "longer than",
        ),
        ("{{ 10 ** 99999999 }}", "power"),
        ("{{ '%999999999d' % 1 }}", "width"),
    ],
)
def test_endless_and_huge_templates_are_stopped(source, message):
    with pytest.raises(ValueError, match=message):
        render(source)


def test_training_marks_are_read_over():
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert render(source) == "hi"
