"""Operations: what is written and what is meant agree, whatever the value, and no sentence means two things."""

import random
from typing import Any

import pytest

from rlanything_jax.envs.code.functions.function import INPUTS, LIMIT, LONGEST, Step, write
from rlanything_jax.envs.code.functions.ops import LETTERS, OPS, TYPES


def values(type: str, rng: random.Random) -> list[Any]:
    """All inputs, and values that only occur on the way."""
    if type == "int":
        return list(range(-LIMIT, LIMIT + 1))
    items: Any = LETTERS if type == "str" else range(-LIMIT, LIMIT + 1)
    drawn = [rng.choices(items, k=rng.randrange(LONGEST + 1)) for _ in range(60)]
    twice = [x + x for x in drawn]
    return [*INPUTS[type], *("".join(x) if type == "str" else x for x in (*drawn, *twice))]


@pytest.mark.parametrize("name", OPS)
def test_the_line_does_what_the_operation_means(name: str) -> None:
    op = OPS[name]
    for constant in op.constants:
        namespace: dict[str, Any] = {}
        exec(write([Step(op, constant)]), namespace)
        for x in values(op.takes, random.Random(0)):
            before = repr(x)
            meant = Step(op, constant).apply(x)
            written = namespace["f"](x)
            assert type(meant) is type(written) is {"int": int, "str": str, "list": list}[op.gives]
            assert meant == written, (constant, x)
            assert repr(x) == before


def test_there_are_operations_from_every_type_and_each_can_be_mistaken_for_another() -> None:
    assert len({name.partition(".")[2] for name in OPS}) >= 30
    for op in OPS.values():
        assert op.takes in TYPES and op.gives in TYPES and len(op.sentences) == len(set(op.sentences)) >= 2
        assert any(
            other is not op and (other.family, other.takes, other.gives) == (op.family, op.takes, op.gives)
            for other in OPS.values()
        ), op.name


def test_no_sentence_means_two_operations_on_the_same_type() -> None:
    said = [
        (op.takes, Step(op, constant, wording).sentence)
        for op in OPS.values()
        for constant in op.constants
        for wording in range(len(op.sentences))
    ]
    assert len(said) == len(set(said))


def test_a_step_says_and_writes_its_constant() -> None:
    step = Step(OPS["int.sub_above"], 3, 1)
    assert step.sentence == "Subtract 3 if it is above 3."
    assert step.line == "x = x - 3 if x > 3 else x"
    assert (step.apply(3), step.apply(4)) == (3, 1)
    assert Step(OPS["str.skip"], "b").line == "x = x[1:] if x[:1] == 'b' else x"
