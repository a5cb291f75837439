import pytest
from byte_vocabulary import EOS, OTHER_EOS, VOCAB_SIZE, Bytes

from octavo.guidance import GrammarCompiler


@pytest.fixture
def compiler():
    made = GrammarCompiler(Bytes(), VOCAB_SIZE, [EOS, OTHER_EOS])
    yield made
    made.close()
