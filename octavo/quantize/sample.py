"""Texts: what the check is measured on, what the inputs' weights are measured on, and probes of tokenizers."""

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

CALIBRATION: Final = """\
A glacier is a river of ice. Snow that falls on high ground is pressed together by the snow above it until it turns
into ice, and under its own weight the ice begins to flow downhill, a few centimetres or sometimes several metres a day.
Where it reaches warmer valleys it melts, leaving behind the stones that it carried. Much of northern Europe was shaped
this way.

Question: A train leaves at 9:40 and arrives at 13:05. How long does the journey take?
Answer: From 9:40 to 13:00 it is 3 hours and 20 minutes, and 5 more minutes make 3 hours and 25 minutes.

The committee met on Tuesday to discuss the budget. After a long debate, 14 members voted in favour, 6 against, and 2
abstained. The chairwoman thanked everyone for their patience and said that the new rules would apply from 1 January.

import json

class Inventory:
    def __init__(self, path):
        self.path = path
        self.items = {}

    def add(self, name: str, count: int = 1) -> None:
        if count <= 0:
            raise ValueError("count must be positive")
        self.items[name] = self.items.get(name, 0) + count

    def save(self):
        with open(self.path, "w") as file:
            json.dump(self.items, file, indent=2)

Old Mr. Peters had repaired clocks for fifty years. "People bring me their grandmother's watch," he used to say, "and
what they really want is to hear it tick again." His shop was dark and smelled of oil; on every wall something moved.
When his hands began to shake, he taught the girl from next door how to hold the tweezers, and never once raised his
voice.

Dear Ms. Novak,
thank you for your letter of 3 March. We are sorry to hear that your order (no. 48213) arrived damaged. A replacement
will be sent to you this week at no extra cost; please keep the original packaging. Kind regards, the customer service.

| city | population | founded |
|---|---|---|
| Lisbon | 545,000 | c. 1200 BC |
| Vienna | 1,980,000 | 1st century |

Plants make sugar from carbon dioxide and water with the energy of sunlight; oxygen is left over. At night they breathe
as animals do. Le soleil se lève à l'est. Die Sonne geht im Osten auf. El sol sale por el este.
"""
"""About 600 tokens, no sentence of which is in SAMPLE"""

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
