"""Generation: a pure function of its arguments, splits that share nothing, knobs that do what they say."""

from itertools import pairwise
from typing import Any

import pytest

from rlanything_jax.envs.code.functions.function import Function, signature
from rlanything_jax.envs.code.functions.generate import SPLITS, generate, is_unseen, split_of


def test_equal_arguments_give_equal_functions_and_other_seeds_others() -> None:
    assert generate(3, steps=(2, 3)) == generate(3, steps=[2, 3])
    assert generate(3).problem == generate(3).problem
    assert len({generate(seed).key for seed in range(200)}) > 190


def test_splits_share_no_steps_whatever_the_knobs() -> None:
    knobs: tuple[dict[str, Any], ...] = (
        {"steps": (1, 2), "types": ("int",)},
        {"steps": (1, 4)},
        {"steps": (2, 3), "largest": 3, "varied": False},
    )
    found: dict[str, set[str]] = {}
    for split in SPLITS:
        functions = [generate(seed, split=split, **some) for some in knobs for seed in range(150)]
        assert all(split_of(f.argument, f.ops) == split == f.split for f in functions)
        found[split] = {signature(f.argument, f.ops) for f in functions}
    train, seen, unseen = found.values()
    assert not train & seen and not train & unseen and not seen & unseen


def test_a_pair_of_operations_is_held_out_for_the_unseen_split() -> None:
    def pairs(function: Function) -> list[tuple[str, str]]:
        return [(a.op.name, b.op.name) for a, b in pairwise(function.ops)]

    for seed in range(100):
        assert not any(is_unseen(*pair) for pair in pairs(generate(seed)))
        assert not any(is_unseen(*pair) for pair in pairs(generate(seed, split="valid_seen")))
        assert any(is_unseen(*pair) for pair in pairs(generate(seed, split="valid_unseen")))


def test_knobs_bound_steps_types_and_constants_and_turn_words_and_example() -> None:
    for seed in range(100):
        function = generate(seed, steps=(2, 3), types=("int", "str"), largest=4, varied=False, example=True)
        assert 2 <= len(function.ops) <= 3
        assert {function.argument, *(step.op.gives for step in function.ops)} <= {"int", "str"}
        assert all(not isinstance(step.constant, int) or step.constant <= 4 for step in function.ops)
        assert function.wording == (0, 0) and not any(step.wording for step in function.ops)
        assert "\nExample: f(" in function.problem.statement
    assert {len(generate(seed, steps=(1, 3)).ops) for seed in range(50)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"split": "test"}, "unknown split 'test'"),
        ({"steps": (0, 2)}, r"steps=\(0, 2\)"),
        ({"steps": (3, 2)}, r"steps=\(3, 2\)"),
        ({"steps": (1, 9)}, r"steps=\(1, 9\)"),
        ({"types": ("float",)}, r"types=\('float',\)"),
        ({"types": ()}, r"types=\(\)"),
        ({"split": "valid_unseen", "steps": (1, 1)}, "steps"),
    ],
)
def test_knobs_that_cannot_be_are_named(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        generate(0, **arguments)
