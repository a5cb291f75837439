# ruff: noqa: RUF001 - the texts are meant to be hard
"""Make the golden values of tests/text/data.

    python scripts/make_tokenizer_goldens.py ids --llama-lib DIR --smollm2 FILE --gemma3 FILE
    python scripts/make_tokenizer_goldens.py chats [--smollm2 FILE]

`ids` needs llama.cpp's shared libraries in DIR (libllama.so and libggml*.so; the ids are those that
llama-tokenize prints). `chats` needs transformers, and its gguf package for the model's own template.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "tests" / "text" / "data"

TEXTS = [
    "",
    " ",
    "Hello, world!",
    " Hello",
    "Hello ",
    "  two  spaces   three    four",
    "It's we've I'LL don't DON'T they'd o'clock",
    "The quick brown fox jumps over the lazy dog. 0123456789 3.14159 1,000,000 2026-11-29",
    "a\nb\n\nc\n\n\nd\n\n\n\n e\r\nf\r\n\r\n",
    "\n",
    "\t\ttabs\t \tand spaces \n \n  \t",
    " " * 40 + "x" + " " * 7,
    "\n" * 40 + "x",
    "def f(x: int) -> str:\n    if x >= 10:\n\treturn f'{x!r}'  # why?\n    return \"no\"\n\n\nclass A(B):\n    pass\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }  // loop",
    '<table><tr><td class="x">1</td></tr></table> <b>bold</b></ p>',
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\dir\\file.txt",
    "你好，世界。今天天气很好，我们去公园吧！",
    "こんにちは、世界。カタカナとひらがな",
    "안녕하세요 세계",
    "नमस्ते दुनिया, यह एक परीक्षण है। क्षत्रिय",
    "สวัสดีชาวโลก ภาษาไทย",
    "مرحبا بالعالم שלום עולם",
    "Привет, мир! Ёлка «цитата» — тире",
    "é e\u0301 ñ n\u0303 ﬁ ½ Ⅷ ² ™",
    "👩‍👩‍👧‍👦 family, 🇩🇪🇫🇷 flags, 👍🏽 skin, ❤️ heart, 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 ﷽",
    "\u00a0no-break\u2003em\u200bzero\u3000ideographic\u0085next\u2028line",
    "\x00\x01\x7f control",
    "\ue000 private \U0010ffff last \ufffd replacement",
    "▁ under ▁▁ scores __ and <0x41> bytes",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n",
    "text<|endoftext|>more<eos><bos>x<unk><pad>",
    "<|im_end|> <|im_end|>  <|im_end <|im_end|",
    " <end_of_turn> <unused12> <start_of_image>",
    "[multimodal]<mask><h1>title</h1><ul><li>x</li></ul>",
    "mixed: 你好 hello नमस्ते 12345 👍 <|im_end|> \n\n\t x = {1: 'a'}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "x" * 30 + "1" * 30 + "!" * 30,
    "SELECT * FROM t WHERE a<>b AND c LIKE '%d_' -- ok\n;",
    "$x^2 + y^2 = z^2$ \\frac{a}{b} ∑∞≠≤ →",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n* item\n- item\n1. item\n",
    "... -- --- ==== ????? !!!!! ,,,, ;;;",
    "CamelCase snake_case kebab-case SCREAMING_CASE iPhone15Pro",
]

OWN_TEMPLATES = {
    "blocks": """{% for message in messages %}
    {% if loop.first %}
{{ bos_token }}
    {% endif %}
  {{- '[' + message['role'] | upper + '] ' -}}
  {{ message.content | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}
[ANSWER]
{%- endif %}""",
    "loop controls": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif -%}
{{ loop.index0 }}:{{ m.content }};{% if loop.index0 > 1 %}{% break %}{% endif %}{% endfor %}""",
    "namespace": """{% set ns = namespace(n=0, last='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}
{% set ns.last = m['content'] %}{% endfor %}{{ ns.n }} {{ ns.last }} {{ undefined_name }}|""",
    "tools": """{% if tools %}{{ tools | tojson }}
{{ tools | tojson(indent=2) }}{% for t in tools %}<{{ t.function.name }}>{% endfor %}{% endif %}
{%- for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}
{% if m.tool_calls is defined %}{% for c in m.tool_calls %}
{{ c.function.arguments | tojson }}{% endfor %}{% endif %}
{% endfor %}""",
    "macro": """{% macro turn(m, end='</s>') -%}
<{{ m.role }}>{{ m.content ~ end }}
{%- endmacro %}{{ messages | length }}{% for m in messages[::-1] %}
{{ turn(m) }}{{ turn(m, end='.') }}{% endfor %}""",
    "system first": """{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}
{% set messages = messages[1:] %}{% else %}{% set system = 'none' %}{% endif %}
{{ system }}{% for m in messages %}{{ '\\n' ~ m['content'].split(' ')[-1] ~ '\\t' ~ m['content'].strip('!') }}
{% endfor %}""",
}

CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi there!"}],
    [
        {"role": "system", "content": "  Be brief. "},
        {"role": "user", "content": "What is <b>1 & 1</b>?\n\n"},
        {"role": "assistant", "content": 'It\'s "2".'},
        {"role": "user", "content": "你好 👍🏽"},
    ],
    [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": "<é>"}}}],
        },
    ],
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "l'été <&>", "parameters": {"x": [1, 2]}},
    }
]


class LlamaCpp:
    """Just enough of libllama to tokenize."""

    class _Params(ctypes.Structure):
        """llama_model_params, whose layout differs by version: large enough, passed on as filled."""

        _fields_ = (("bytes", ctypes.c_uint8 * 512),)

    def __init__(self, folder: Path, model: Path) -> None:
        for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        self._lib = lib = ctypes.CDLL(str(folder / "libllama.so"))
        lib.llama_model_default_params.restype = self._Params
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, self._Params]
        lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        ids = ctypes.POINTER(ctypes.c_int32)
        text = [ctypes.c_char_p, ctypes.c_int32]
        lib.llama_tokenize.argtypes = [
            ctypes.c_void_p,
            *text,
            ids,
            ctypes.c_int32,
            ctypes.c_bool,
            ctypes.c_bool,
        ]
        lib.llama_backend_init()
        handle = lib.llama_model_load_from_file(str(model).encode(), lib.llama_model_default_params())
        self._vocab = lib.llama_model_get_vocab(handle)

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        ids = (ctypes.c_int32 * (2 * len(data) + 16))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), ids, len(ids), add_special, parse_special)
        if count < 0:
            raise RuntimeError(f"llama_tokenize gave {count} for {text!r}")
        return list(ids[:count])


def make_ids(folder: Path, models: dict[str, Path]) -> list[dict[str, Any]]:
    oracles = {name: LlamaCpp(folder, path) for name, path in models.items()}
    rows = []
    for text in TEXTS:
        ids = {
            name: {
                "special": oracle.encode(text, False, True),
                "plain": oracle.encode(text, False, False),
                "with_bos": oracle.encode(text, True, False),
            }
            for name, oracle in oracles.items()
        }
        rows.append({"text": text, "ids": ids})
    return rows


def make_chats(smollm2: Path | None) -> list[dict[str, Any]]:
    import tokenizers
    import transformers

    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    templates = dict(OWN_TEMPLATES)
    if smollm2 is not None:
        import gguf

        fields = gguf.GGUFReader(smollm2).fields
        templates["smollm2"] = fields["tokenizer.chat_template"].contents()
    rows = []
    for name, template in templates.items():
        for index, messages in enumerate(CHATS):
            for add_generation_prompt, tools in ((True, None), (False, TOOLS)):
                text = tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    chat_template=template,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                )
                rows.append(
                    {
                        "name": f"{name} {index}{' tools' if tools else ''}",
                        "template": template,
                        "messages": messages,
                        "tools": tools,
                        "add_generation_prompt": add_generation_prompt,
                        "text": text,
                    }
                )
    return rows


def write(name: str, rows: list[dict[str, Any]]) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    (DATA / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{DATA / name}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ids", "chats"])
    parser.add_argument("--llama-lib", type=Path)
    parser.add_argument("--smollm2", type=Path)
    parser.add_argument("--gemma3", type=Path)
    options = parser.parse_args()
    if options.what == "chats":
        write("chat_goldens.json", make_chats(options.smollm2))
        return
    if None in (options.llama_lib, options.smollm2, options.gemma3):
        parser.error("ids needs --llama-lib, --smollm2 and --gemma3")
    models = {"smollm2": options.smollm2, "gemma3-270m": options.gemma3}
    write("id_goldens.json", make_ids(options.llama_lib, models))


if __name__ == "__main__":
    main()
