"""Packing: who sees whom, that nothing is lost or doubled, and that a token keeps its own advantage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything_jax.trainer.batches import (
    Batch,
    Piece,
    TrainSequence,
    attention_mask,
    normalise,
    pack,
    split_branches,
)


def piece(tokens: list[int], weight: float = 1.0, point: int = 0) -> Piece:
    """Advantage and log-probability follow from the token, so that a shift of any of them shows."""
    return Piece(
        tokens, [weight] * len(tokens), [t + 0.5 for t in tokens], [-t - 0.25 for t in tokens], point
    )


def numbered(
    sizes: list[tuple[int, list[tuple[int, int]]]], trunk_weight: float = 1.0
) -> list[TrainSequence]:
    """Sequences of (trunk size, [(branch size, point)]) whose tokens are 1, 2, 3, ... over all of them."""
    ids = iter(range(1, 10_000))

    def take(n: int) -> list[int]:
        return [next(ids) for _ in range(n)]

    return [
        TrainSequence(piece(take(n), trunk_weight), [piece(take(m), point=min(p, n)) for m, p in branches])
        for n, branches in sizes
    ]


BRANCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=6)
SIZES = st.lists(st.tuples(st.integers(1, 9), BRANCHES), max_size=6)


def test_attention_mask_of_the_picture() -> None:
    """The example at the top of batches.py, a second sequence and padding behind it."""
    first = TrainSequence(piece([1, 2, 3, 4]), [piece([5, 6], point=2), piece([7, 8, 9], point=4)])
    batch = pack([first, TrainSequence(piece([11, 12]))], tokens=13, lengths=(13,))[0]
    np.testing.assert_array_equal(batch.branch, [[0, 0, 0, 0, 1, 1, 2, 2, 2, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.position, [[0, 1, 2, 3, 2, 3, 4, 5, 6, 0, 1, 0, 0]])
    np.testing.assert_array_equal(batch.limit, [[0, 0, 0, 0, 2, 2, 4, 4, 4, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.segment, [[1] * 9 + [2] * 2 + [0] * 2])
    picture = """
        x . . . . . . . . . . . .
        x x . . . . . . . . . . .
        x x x . . . . . . . . . .
        x x x x . . . . . . . . .
        x x . . x . . . . . . . .
        x x . . x x . . . . . . .
        x x x x . . x . . . . . .
        x x x x . . x x . . . . .
        x x x x . . x x x . . . .
        . . . . . . . . . x . . .
        . . . . . . . . . x x . .
        . . . . . . . . . . . . .
        . . . . . . . . . . . . .
    """
    expected = [[mark == "x" for mark in line.split()] for line in picture.strip().splitlines()]
    np.testing.assert_array_equal(attention_mask(batch)[0], expected)


@given(SIZES)
def test_every_token_trains_on_its_own_advantage(sizes: list) -> None:
    """Else one prompt that is dropped without its advantage moves all later samples by one."""
    sequences = numbered(sizes)
    batches = pack(sequences, tokens=48, lengths=(24, 54))
    seen: list[int] = []
    for batch in batches:
        real = batch.segment > 0
        np.testing.assert_array_equal(batch.advantage[real], batch.tokens[real] + 0.5)
        np.testing.assert_array_equal(batch.logprobs[real], -batch.tokens[real] - 0.25)
        assert not batch.weight[~real].any() and not batch.tokens[~real].any()
        seen += batch.tokens[batch.weight > 0].tolist()
    expected = [t for s in sequences for p in (s.trunk, *s.branches) for t in p.tokens]
    assert sorted(seen) == expected


@given(SIZES, st.integers(1, 60))
def test_tail_batch_changes_shape(sizes: list, tokens: int) -> None:
    """Case 26: micro-batches of one row length have one shape, the last one filled up with empty rows."""
    for batch in pack(numbered(sizes), tokens=tokens, lengths=(16, 54)):
        rows, length = batch.tokens.shape
        assert length in (16, 54) and rows == max(1, tokens // length)


def test_a_sequence_opens_the_shortest_row_that_holds_it() -> None:
    def shapes(*sizes: int) -> list[tuple[int, ...]]:
        batches = pack(numbered([(n, []) for n in sizes]), tokens=20, lengths=(5, 10, 20))
        return [batch.tokens.shape for batch in batches]

    assert shapes(3, 2, 5) == [(4, 5)]
    assert shapes(3, 3, 6) == [(4, 5), (2, 10)]  # the first 3 fits behind the 6, the second does not
    assert shapes(11, 9) == [(1, 20)]
    assert shapes(11, 10) == [(2, 10), (1, 20)]
    assert shapes(*[5] * 9) == [(4, 5)] * 3
    assert shapes() == []


def test_rows_are_a_multiple_of_the_groups_of_devices() -> None:
    """Ten tokens are two rows of five, which four groups cannot share; what is left over is empty rows."""
    batches = pack(numbered([(4, [])] * 5), tokens=10, lengths=(5,), shards=4)
    assert [batch.tokens.shape for batch in batches] == [(4, 5), (4, 5)]
    assert [(batch.segment > 0).any(axis=1).sum() for batch in batches] == [4, 1]
    assert pack(numbered([(4, [])]), tokens=10, lengths=(5,), shards=2)[0].tokens.shape == (2, 5)


def test_short_sequences_share_a_row() -> None:
    batch = pack(numbered([(4, []), (2, []), (3, []), (1, [])]), tokens=10, lengths=(5,))[0]
    np.testing.assert_array_equal(batch.tokens, [[1, 2, 3, 4, 10], [7, 8, 9, 5, 6]])
    np.testing.assert_array_equal(batch.segment, [[1, 1, 1, 1, 2], [1, 1, 1, 2, 2]])
    np.testing.assert_array_equal(batch.position, [[0, 1, 2, 3, 0], [0, 1, 2, 0, 1]])


def test_over_length_prompt_dropped_but_its_advantage_kept() -> None:
    """A sequence that fits no row is an error that names the option, not a sequence less."""
    with pytest.raises(ValueError, match=r"21 tokens fits no row of trainer\.length_buckets=\(5, 20\)"):
        pack(numbered([(3, []), (21, []), (2, [])]), tokens=40, lengths=(5, 20))
    with pytest.raises(ValueError, match="21 tokens fits no row"):  # a branch cannot be cut
        pack(numbered([(18, [(2, 18), (3, 18)])]), tokens=40, lengths=(20,))


@given(st.integers(1, 9), BRANCHES, st.sampled_from([0.0, 1.0]), st.integers(14, 40))
def test_a_long_tree_is_cut_into_trees_that_hold_each_branch_once(
    trunk: int, branches: list, trunk_weight: float, length: int
) -> None:
    sequence = numbered([(trunk, branches)], trunk_weight)[0]
    parts = split_branches(sequence, length)
    assert all(len(part) <= length for part in parts)
    assert [b for part in parts for b in part.branches] == sequence.branches
    assert all(part.trunk.tokens == sequence.trunk.tokens for part in parts)
    trained = [part for part in parts if any(part.trunk.weight)]
    assert len(trained) == (1 if trunk_weight else 0)
    if len(sequence) <= length:
        assert parts == [sequence]


def test_a_trunk_alone_in_its_part_is_left_out_unless_it_is_trained() -> None:
    """The first branch already does not fit beside the trunk's copy: there is no part without a purpose."""
    sequence = TrainSequence(piece([1] * 8, weight=0.0), [piece([2] * 4), piece([3] * 4)])
    assert [len(part.branches) for part in split_branches(sequence, 12)] == [1, 1]
    untrained = TrainSequence(piece([1] * 8, weight=0.0), [piece([2] * 5)])
    assert [len(part) for part in split_branches(untrained, 12)] == [13]  # for `pack` to refuse


@given(SIZES, st.sampled_from([0.0, 1.0]))
def test_weights_sum_to_one_over_all_micro_batches(sizes: list, trunk_weight: float) -> None:
    kept = normalise(numbered(sizes, trunk_weight))
    batches = pack(kept, tokens=24, lengths=(24, 54))
    trained = any(branches or trunk_weight for _, branches in sizes)
    assert sum(float(batch.weight.sum()) for batch in batches) == pytest.approx(1.0 if trained else 0.0)


def test_normalise_keeps_proportions_and_leaves_out_what_is_not_trained() -> None:
    sequences = [
        TrainSequence(Piece([1, 2, 3], [0.0, 0.5, 0.5], [0.0] * 3, [0.0] * 3)),
        TrainSequence(piece([4, 5], weight=0.0)),
        TrainSequence(piece([6, 7], weight=0.0), [piece([8], weight=3.0)]),
    ]
    kept = normalise(sequences)
    assert kept == [sequences[0], sequences[2]]
    assert kept[0].trunk.weight == [0.0, 0.125, 0.125]
    assert kept[1].trunk.weight == [0.0, 0.0] and kept[1].branches[0].weight == [0.75]
    assert normalise([]) == [] and normalise([sequences[1]]) == []


def test_a_batch_may_be_cut_along_its_rows() -> None:
    batch = pack(numbered([(4, []), (4, [(1, 2)]), (3, [])]), tokens=15, lengths=(5,))[0]
    whole = np.asarray(attention_mask(batch))
    for row in range(3):
        one = Batch(*(x[row : row + 1] for x in batch))
        np.testing.assert_array_equal(attention_mask(one)[0], whole[row])
