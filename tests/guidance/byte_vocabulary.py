"""A vocabulary of bytes and of some words."""

import numpy as np

from octavo import SamplingParams, StructuredOutputsParams

EOS, OTHER_EOS, CONTROL = 256, 257, 258
WORDS = (b'{"', b'":', b"true", b"yes", b" please", b"</s>", b"<call>")
VOCAB_SIZE = 300


class Bytes:
    """Bytes are ids; then two ends, a control token, words, and ids that are not used."""

    vocab_size = 280
    control_ids = frozenset({EOS, OTHER_EOS, CONTROL})

    def token_bytes(self, token_id):
        if token_id < 256:
            return bytes([token_id])
        if token_id in self.control_ids:
            return b"<call>" if token_id == CONTROL else b"</s>"
        return WORDS[token_id - 259] if token_id - 259 < len(WORDS) else b""


def word(text):
    return 259 + WORDS.index(text)


def allowed(constraint):
    bits = np.unpackbits(constraint.mask.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def wanted(more=None, **form):
    return SamplingParams(structured_outputs=StructuredOutputsParams(**form), **(more or {}))
