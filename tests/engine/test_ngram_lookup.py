"""Predictions from a sequence's own tokens."""

import numpy as np
import pytest

from octavo.engine.ngram_lookup import NgramLookup


def told(token_ids, first=0):
    """A lookup that was made of the first tokens and told of the others one by one."""
    lookup = NgramLookup(token_ids[:first])
    for end in range(first + 1, len(token_ids) + 1):
        lookup.extend(token_ids[:end])
    return lookup


def test_what_followed_the_last_two_tokens_is_expected_again():
    ids = [5, 6, 7, 8, 9, 1, 6, 7]
    for first in (0, 2, len(ids)):
        assert told(ids, first).draft(ids, 3, 0.01) == [8, 9, 1]


def test_of_several_places_the_latest_counts():
    ids = [1, 2, 3, 1, 2, 4, 0, 1, 2]
    assert told(ids).draft(ids, 2, 0.01) == [4, 0]


def test_a_draft_that_reaches_the_end_repeats_itself():
    ids = [9, 1, 2, 3, 1, 2]
    assert told(ids).draft(ids, 8, 0.001) == [3, 1, 2, 3, 1, 2, 3, 1]
    ids = [4, 4, 4]
    assert told(ids).draft(ids, 4, 0.01) == [4, 4, 4, 4]


def test_new_tokens_predict_nothing():
    for ids in ([], [1], [1, 2], [1, 2, 3, 4]):
        lookup = told(ids)
        assert lookup.confidence == 0.0
        assert lookup.draft(ids, 4, 0.0) == []


def test_an_occurrence_at_the_very_end_is_no_earlier_one():
    ids = [1, 2]
    assert told(ids).confidence == 0.0


def test_hits_raise_the_confidence_and_misses_lower_it():
    ids = [1, 2, 3, 4, 5, 6, 1, 2]
    lookup = told(ids)
    before = lookup.confidence
    for token in (3, 4, 5, 6):
        ids.append(token)
        lookup.extend(ids)
    assert lookup.confidence > before
    high = lookup.confidence
    for token in (7, 1, 2, 9, 1, 2, 8):  # twice 1, 2 and then something else
        ids.append(token)
        lookup.extend(ids)
    ids += [1, 2]
    lookup.extend(ids)
    assert 0.0 < lookup.confidence < high


def test_a_draft_is_as_long_as_its_tokens_are_likely():
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    lookup = told(ids)
    assert lookup.confidence == 0.5
    assert lookup.draft(ids, 8, 0.25) == [3, 4]  # reached and right: 0.5, 0.25
    assert lookup.draft(ids, 8, 0.2) == [3, 4]
    assert lookup.draft(ids, 8, 0.12) == [3, 4, 5]
    assert lookup.draft(ids, 1, 0.12) == [3]
    assert lookup.draft(ids, 0, 0.12) == []
    assert lookup.draft(ids, 8, 0.6) == []


@pytest.mark.parametrize("seed", range(5))
def test_it_says_the_same_however_it_was_told(seed):
    ids = np.random.default_rng(seed).integers(0, 4, 200).tolist()
    one, pieces = told(ids, 2), NgramLookup(ids[:2])
    for end in (3, 50, 51, 140, 200):
        pieces.extend(ids[:end])
    assert one.confidence == pieces.confidence
    assert one.draft(ids, 8, 0.001) == pieces.draft(ids, 8, 0.001)


def test_text_that_repeats_itself_is_predicted_and_noise_is_not():
    loop, noise = [*range(20)] * 10, np.random.default_rng(0).integers(0, 50_000, 400).tolist()
    assert told(loop).confidence > 0.95
    assert told(noise).confidence == 0.0
