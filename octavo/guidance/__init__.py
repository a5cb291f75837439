"""Structured outputs: from a form that the user names to the tokens that are allowed next.

llguidance, a library in Rust, compiles grammars and walks the vocabulary; here is what it needs to know of a model
(`vocabulary`), what it is asked (`grammar`), who compiles and remembers (`compiler`), and what one sequence carries
(`token_constraint`).
"""

from octavo.guidance.compiler import GrammarCompiler
from octavo.guidance.token_constraint import TokenConstraint

__all__ = ["GrammarCompiler", "TokenConstraint"]
