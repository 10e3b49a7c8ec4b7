"""Edits: they read back as they are written, make what they say, and are refused for a reason that is told."""

import random
from typing import Any

import pytest

from rlanything_jax.envs.base import Refused
from rlanything_jax.envs.code.functions import build, edit, fingerprint
from rlanything_jax.envs.code.functions.edit import Edit
from rlanything_jax.envs.code.functions.function import Function, Step
from rlanything_jax.envs.code.functions.generate import generate, split_of
from rlanything_jax.envs.code.functions.ops import OPS

ADD, NEG = Step(OPS["int.add"], 3), Step(OPS["int.neg"], None)


def of_split(*steps: Step, argument: str = "int") -> Function:
    return Function(argument, steps, split=split_of(argument, steps))


@pytest.mark.parametrize(
    "text",
    ["append: Add 3.", "replace 2: If it is above 3, subtract 3.", "drop 2", "example on", "example off"],
)
def test_an_edit_reads_back_as_it_is_written(text: str) -> None:
    assert str(Edit.parse(text)) == text
    assert str(Edit.parse(f"  {text.upper().replace(' ', '   ')}\n")) == text
    assert str(Edit.parse(text.removesuffix("."))) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot read ''"),
        ("drop", "cannot read 'drop'"),
        ("drop two", "cannot read 'drop two'"),
        ("append Add 3.", "cannot read 'append Add 3.'"),
        ("append: Frobnicate it.", "no step is said like this"),
        ("append: Add 33.", "no step is said like this"),
        ("replace: Add 3.", "cannot read"),
        ("example maybe", "cannot read"),
        ("drop 1 ; drop 2", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        Edit.parse(text)


def test_edits_make_what_they_say() -> None:
    def edited(text: str, *expected: Step) -> Function:
        """Of a function in the split of what is expected, so that no edit leads out of it."""
        return Edit.parse(text).apply(Function("int", (ADD, NEG), split=split_of("int", expected)))

    assert edited("drop 1", NEG).ops == (NEG,) and edited("drop 2", ADD).ops == (ADD,)
    longer = edited(
        "append: If it is above 4, make it 4.", *(more := (ADD, NEG, Step(OPS["int.at_most"], 4, 1)))
    )
    assert longer.ops == more and (longer(-10), longer(2)) == (4, -5)
    other = edited("replace 2: Take it modulo 4.", *(steps := (ADD, Step(OPS["int.mod"], 4))))
    assert other.ops == steps
    shown = edited("example on", ADD, NEG)
    assert shown.example and shown.ops == (ADD, NEG) and "\nExample: " in shown.problem.statement
    assert not Edit.parse("example off").apply(shown).example


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("example off", "changes nothing"),
        ("replace 1: Increase it by 3.", "changes nothing"),  # other words for the same
        ("drop 3", "only steps 1 to 2"),
        ("drop 0", "only steps 1 to 2"),
        ("replace 3: Add 3.", "only steps 1 to 2"),
        ("append: Sort it.", "type int"),
        ("append: Negate it.", "makes no difference"),
    ],
)
def test_an_edit_that_makes_no_new_function_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        Edit.parse(text).apply(of_split(ADD, NEG))


def test_a_function_needs_a_step_and_has_at_most_five() -> None:
    with pytest.raises(Refused, match="1 to 5 steps, not 0"):
        Edit.parse("drop 1").apply(of_split(ADD))
    five = generate(0, types=("int",), steps=(5, 5))
    with pytest.raises(Refused, match="1 to 5 steps, not 6"):
        Edit.parse("append: Take it modulo 7.").apply(five)


def test_no_edit_leads_into_another_split() -> None:
    taken = 0
    for seed in range(60):
        function = generate(seed, types=("int",))
        for text in ("append: Take its absolute value.", "append: Double it.", "drop 1", "drop 2"):
            try:
                edited = Edit.parse(text).apply(function)
            except Refused as refused:
                taken += "not of the split 'train'" in str(refused)
            else:
                assert split_of(edited.argument, edited.ops) == "train"
    assert taken > 10


def test_specs_build_edited_functions_and_know_equal_ones() -> None:
    rng = random.Random(0)
    made = 0
    for seed in range(40):
        spec: dict[str, Any] = {
            "generate": {"seed": seed, "split": "train", "steps": [2, 3], "types": ["int"]}
        }
        assert build(spec) is build(dict(spec)) and build(spec) == generate(**spec["generate"])
        before, texts = spec, [f"drop {rng.randint(1, 2)}", "example on", "append: Negate it."]
        for text in texts:
            try:
                spec = edit.apply(spec, text)
            except Refused:
                continue
            made += 1
            assert spec["edits"][-1] == text and spec["generate"] == before["generate"]
            assert fingerprint(spec) != fingerprint(
                {**spec, "edits": spec["edits"][:-1]} if spec["edits"][1:] else before
            )
            function = build(spec)
            namespace: dict[str, Any] = {}
            exec(function.program, namespace)
            for test in function.problem.tests:
                assert repr(eval(test.input, namespace)) == test.output
    assert made > 60
    on = edit.apply({"generate": {"seed": 1, "split": "train"}}, "example on")
    assert fingerprint(edit.apply(on, "example off")) == fingerprint(
        {"generate": {"seed": 1, "split": "train"}}
    )
