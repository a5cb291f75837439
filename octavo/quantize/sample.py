"""Text that every model knows something about: what the check is measured on, and probes of tokenizers."""

from __future__ import annotations

from typing import Final

SAMPLE: Final = """\
The harbour town woke early. By the time the first ferry sounded its horn, the bakers had already been at work for
three hours, and the smell of bread drifted down the narrow streets to the quay. Fishermen mended their nets, talked
about the weather, and complained, as they did every spring, that the herring came later each year.

Water boils at 100 degrees Celsius at sea level, but on a mountain 3,000 metres high it boils at about 90 degrees,
because the pressure of the air is lower there. That is why potatoes take longer to cook in the mountains.

In 1969 two people walked on the Moon for the first time while a third stayed in orbit. They brought back 21.5 kg of
rock and soil, left behind a small mirror that scientists still aim lasers at, and returned to Earth after eight days.

def fibonacci(n):
    \"\"\"Return the first n Fibonacci numbers.\"\"\"
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]

To make a simple tomato soup, you need:
1. one onion and two cloves of garlic
2. a tablespoon of olive oil
3. 800 g of ripe tomatoes
4. salt, pepper and a few leaves of basil
Chop the onion, fry it gently in the oil until it is soft, add the garlic and the tomatoes, and let everything simmer
for twenty minutes. Then blend the soup, season it, and serve it with a slice of toasted bread.

"I don't think we've met," she said, closing the book. "My name is Clara. I'm looking after the library while Mr. Hale
is away." He hesitated, then smiled. "Then you're the one I wanted to see. My grandfather borrowed something here in
1952, and I believe it's time that somebody brought it back."
"""
"""About 450 tokens of prose, facts, code, a list and speech."""

PROBES: Final = (
    SAMPLE,
    "a",
    " leading space, two  spaces,   three;\ttabs\t\tand\n\n\nnewlines \n  and trailing   ",
    "It's I'LL we'Ve they'd 'tis o'clock DON'T can't'nt",
    "1 12 123 1234 12345678 3.14159 1,000,000 0x1F 2024-05-17 ½ ² ١٢٣ 10km 5th v2.0",
    "snake_case camelCase HTTPServer XMLHttpRequest __init__ a+b==c && !d || x->y; /* c */ // d\r\n#include <a/b.h>",
    "Größe naïve café Ångström ŒUVRE ПРИВЕТ мир Ελλάδα שלום مرحبا नमस्ते สวัสดี",
    "日本語のテキスト。中文字符，测试！ 한국어 문장. ｆｕｌｌｗｉｄｔｈ",  # noqa: RUF001
    "x\u0301 q\u0323 combining \u200b zero width \u00a0 no-break \u3000 ideographic space \u2028 line",
    "😀 👍🏽 👨‍👩‍👧 🇩🇪 ❤️ ∑∞≠ “quotes” — dash… •",
    "((([[[{{{<<<>>>}}}]]])))!!!???...,,,;;;:::---===***///\\\\\\",
)
"""Where tokenizers cut words differently: spaces, contractions, digits, cases, scripts, marks, emoji, punctuation."""
