"""From the fields of a request to what the engine is asked for."""

from __future__ import annotations

from typing import Any

from octavo.beam_search_params import MAX_BEAM_WIDTH, BeamSearchParams
from octavo.parameter_checks import check_integer
from octavo.sampling_params import SamplingParams
from octavo.server.errors import bad_request, short
from octavo.server.fields import GenerationFields

Params = SamplingParams | BeamSearchParams
NOT_AS_THEY_ARE = {"logprobs", "max_tokens", "structured_outputs"}
"""Fields that each route reads its own way, and gives to make_params"""
SAMPLING_NAMES = frozenset(SamplingParams.__dataclass_fields__) - NOT_AS_THEY_ARE
BEAM_SEARCH_NAMES = frozenset(BeamSearchParams.__dataclass_fields__) - NOT_AS_THEY_ARE
FOR_BEAMS_ONLY = ("length_penalty", "early_stopping")
NOT_FOR_BEAMS: dict[str, tuple[object, ...]] = {"temperature": (0,), "top_p": (1,), "top_k": (0, -1), "min_p": (0,)}
"""Fields that beam search does not do, with the values that ask for nothing"""


def make_params(fields: GenerationFields, **more: Any) -> Params:
    """The fields about sampling or beam search that were given, with `more`; ValueError names field, value and
    limit."""
    if fields.use_beam_search:
        return _make_beam_params(fields, more)
    for name in FOR_BEAMS_ONLY:
        if getattr(fields, name) != GenerationFields.model_fields[name].default:
            raise bad_request(f"{name}: may only be given with use_beam_search=true")
    given = SAMPLING_NAMES & fields.model_fields_set
    params = SamplingParams.from_dict({name: getattr(fields, name) for name in given} | more)
    if fields.stream and params.chooses_best:
        raise bad_request(f"best_of is {params.best_of}, must be n, which is {params.n}, with stream=true")
    return params


def _make_beam_params(fields: GenerationFields, more: dict[str, Any]) -> BeamSearchParams:
    """best_of, or else n, is the width. What chooses tokens by chance must ask for nothing."""
    for name, harmless in NOT_FOR_BEAMS.items():
        if name in fields.model_fields_set and getattr(fields, name) not in harmless:
            value = getattr(fields, name)
            raise bad_request(f"{name} is {short(value)}, must be {harmless[0]} or left out with use_beam_search=true")
    name, width = ("n", fields.n) if fields.best_of is None else ("best_of", fields.best_of)
    check_integer(name, width, 1, MAX_BEAM_WIDTH)
    if fields.n > width:
        raise bad_request(f"best_of is {width}, must be at least n, which is {fields.n}")
    values = {name: getattr(fields, name) for name in BEAM_SEARCH_NAMES & fields.model_fields_set}
    return BeamSearchParams.from_dict(values | more | {"beam_width": width, "n": fields.n})
