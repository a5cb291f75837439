"""From logits to tokens. The same bits in C++ (csrc/sampling) and numpy (reference_sampler), on any number
of threads.

One row of logits becomes one token in these steps; a step that the parameters do not ask for is left out.

 1. Reading. NaN counts as -inf, +inf as the largest float32. Logprobs that are asked for are taken here,
    from the raw logits: log-softmax of what the model said, before anything below changes it. Those below
    -9999 are reported as -9999, so that they are always finite (JSON has no infinity). The rank is 1 + the
    number of more likely tokens.
 2. allowed_mask: tokens without a set bit become -inf.
 3. min_tokens: while the output is shorter, the end-of-sequence ids (unless ignore_eos) and stop_token_ids
    become -inf.
 4. logit_bias is added.
 5. Penalties. Repetition, for tokens of prompt or output: logit / penalty where the logit is positive,
    logit * penalty elsewhere. Then, for tokens of the output only: - frequency_penalty * count, then -
    presence_penalty.
 6. Where every logit is -inf now, the row has no token: its id is NO_TOKEN (-1), and other rows are not
    concerned. At temperature 0 the token is the largest logit, of equal ones that with the lowest id.
 7. Weights w = exp((logit - largest) / temperature) in float32; those below 2^-40 are zero. min_p: those
    below it are zero. From here on all is exact: w counts as the integer mass round(w * 2^40), and sums of
    integers have no order.
 8. top_k: the first k tokens, ordered by weight (descending), then by id.
 9. top_p: the shortest prefix of the same order whose mass is at least ceil(top_p * mass of what is left).
10. Choice. 64 random bits R come from Philox4x32-10 with key = seed and counter = (position, sequence
    index, 0), where the position is the number of output tokens so far. The token is the first, by id, at
    which the running mass of the kept tokens exceeds floor(R * total mass / 2^64).

A token thus depends on its logits, its own sequence and (seed, sequence index, position): never on the
neighbours in the batch, on threads, or on what was sampled before, so preemption has nothing to restore.
"""

from octavo.sampling.logprobs import LOGPROB_FLOOR, NO_TOKEN, SampledTokens, TopLogprobs
from octavo.sampling.sampler import Sampler
from octavo.sampling.sampling_state import SamplingState

__all__ = ["LOGPROB_FLOOR", "NO_TOKEN", "SampledTokens", "Sampler", "SamplingState", "TopLogprobs"]
