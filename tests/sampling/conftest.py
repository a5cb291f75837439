import importlib.util

import pytest

from octavo.sampling import Sampler

HAS_NATIVE = importlib.util.find_spec("octavo._native") is not None


@pytest.fixture(params=["native", "reference"])
def make_sampler(request):
    """Sampler(vocab_size) of both implementations."""
    if request.param == "native" and not HAS_NATIVE:
        pytest.skip("the native library is not built")
    return lambda vocab_size: Sampler(vocab_size, use_native=request.param == "native")
