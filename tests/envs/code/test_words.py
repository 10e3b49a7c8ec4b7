"""The words of generated functions: short, read back as written, and nothing outside the vocabulary."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import Tokenizer

from rlanything_jax.dialogue import WordDialogue
from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.code import words
from rlanything_jax.envs.code.functions.edit import Edit
from rlanything_jax.envs.code.functions.function import CLOSINGS, INPUTS, OPENINGS, Function, Step, write
from rlanything_jax.envs.code.functions.generate import generate
from rlanything_jax.envs.code.functions.ops import OPS
from rlanything_jax.envs.code.problem import Problem, Test
from rlanything_jax.envs.code.words import parse_test, read, show
from rlanything_jax.envs.code.world import CodeWorld
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.reward.unit_tests import UnitTests
from rlanything_jax.rollouts import Step as Turn
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.tasks.critique import NO_CRITIQUE

VALUES = [
    (7, "7"),
    (-12, "-12"),
    ("", '" "'),
    ("abca", '" a b c a "'),
    ([], "[ ]"),
    ([3], "[ 3 ]"),
    ([3, -1], "[ 3 -1 ]"),
]


Ids = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer(words.corpus(), words.PHRASES)


@pytest.fixture(scope="module")
def known(tokenizer: Tokenizer) -> set[str]:
    """All pieces of the corpus: of anything else a tokenizer knows the bytes only."""
    return {piece for text in words.corpus() for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)}


@pytest.fixture(scope="module")
def ids(tokenizer: Tokenizer, known: set[str]) -> Ids:
    def of(text: str) -> list[int]:
        """Ids of a text, after a look that it comes back and that it has known pieces only."""
        found = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(found.ids) == text
        assert known.issuperset(found.tokens), text
        return list(found.ids)

    return of


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_values_are_written_with_blanks_and_read_back(value: Any, text: str) -> None:
    assert show(value) == text
    assert read(text) == read(f"  {text} ") == read(repr(value)) == value
    assert type(read(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    ["", "-", "1 2", "007", "1.5", "True", "None", "x", "'a", "\"a'", "'A'", "[1", "[ 1 , 2 ]", "[a]", "['a']", "[[1]]",
     "(1,)", "{1}", "1 + 1", "__import__('os')", "[1]; x", "1" * 5000, "'\\n'", "f(3)", "[1,2]"],
)  # fmt: skip
def test_anything_else_is_no_value(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


def test_every_text_is_made_of_known_pieces_and_short(ids: Ids) -> None:
    lengths: dict[str, list[int]] = {"prompt": [], "program": [], "test": [], "rewrite": []}
    for seed in range(600):
        split = ("train", "valid_seen", "valid_unseen")[seed % 3]
        function = generate(seed, split=split, steps=(2, 4), largest=9, example=seed % 2 == 0)
        problem = function.problem
        start = Observation(problem.statement, (), 0.0, False, False)
        values = [random.Random(seed).choice(INPUTS[function.argument])]
        for step in function.ops:
            values.append(step.apply(values[-1]))
        hidden = problem.tests[-1]
        critique = f"{hidden.input!r} -> {hidden.output!r}: {seed % 101}% of the programs pass"
        texts = {
            "prompt": words.render(start, problem, True),
            "program": function.program,
            "test": words.written(values),
            "rewrite": words.rewrite_prompt(problem, "harder", critique),
        }
        for name, text in texts.items():
            lengths[name].append(len(ids(text)))
        ids(words.test_prompt(problem))
    mean = {name: sum(counts) / len(counts) for name, counts in lengths.items()}
    assert mean["prompt"] < 20 and mean["program"] < 9 and mean["test"] < 30 and mean["rewrite"] < 30
    assert max(lengths["prompt"]) <= 40 and max(lengths["program"]) <= 20
    assert sum(n > 45 for n in lengths["test"]) < 0.05 * len(lengths["test"])


def test_every_sentence_line_and_edit_is_made_of_known_pieces(ids: Ids) -> None:
    for op in OPS.values():
        for constant in op.constants:
            assert len(ids(write([Step(op, constant)]))) <= 7
            for wording in range(len(op.sentences)):
                step = Step(op, constant, wording)
                for opening in range(2):
                    said = f"{OPENINGS[op.takes][opening]} {step.sentence} {CLOSINGS[opening]}"
                    assert len(ids(said)) <= 7
                for text in (f"append: {step.sentence}", f"replace 3: {step.sentence}"):
                    ids(text)
                    assert str(Edit.parse(text)) == text
    assert [len(ids(text)) for text in ("drop 2", "example on", "example off")] == [2, 1, 1]


def test_pieces_of_a_program_a_test_and_an_edit(tokenizer: Tokenizer, ids: Ids) -> None:
    def pieces(text: str) -> list[str]:
        return [tokenizer.decode([i]) for i in ids(text)]

    assert pieces("def f(x):\n    x = x + 3\n    x = max(x, 5)\n    return x") == [
        *("def f(x):", "\n    x = x +", " 3", "\n    x = max(x,", " 5", ")", "\n    return x")
    ]
    assert pieces('try " a b " -> 2\ninput " a b "\noutput -2') == [
        *("try", ' "', " a", " b", ' "', " ->", " 2", "\ninput", ' "', " a", " b", ' "', "\noutput", " -2")
    ]
    assert pieces("append: If it is above 4, subtract 4.") == [
        "append:",
        " If it is above",
        " 4",
        ", subtract",
        " 4",
        ".",
    ]


def problem(argument: str = "int", example: bool = True) -> Problem:
    name, constant = {"int": ("int.add", 3), "str": ("str.append", "b"), "list": ("list.append", 2)}[argument]
    return Function(argument, (Step(OPS[name], constant),), example=example).problem


def test_the_statement_shows_its_example_in_words() -> None:
    shown = next(test for test in problem().tests if test.public)
    x = int(shown.input[2:-1])
    assert (
        words.statement(problem()) == f"Take an integer x. Add 3. Return the result.\nExample: {x} -> {x + 3}"
    )
    assert words.statement(problem(example=False)) == "Take an integer x. Add 3. Return the result."
    letters = words.statement(problem("str")).partition("Example: ")[2]
    assert letters.startswith('" ') and letters.endswith(' b "')


def test_the_policy_reads_the_statement_and_then_what_failed() -> None:
    task = problem("list")
    assert (
        words.render(Observation(task.statement, (), 0, False, False), task, True)
        == f"{words.statement(task)}\nProgram:\n"
    )
    failed = ((Test("f([1])", "[1, 2]", True), "wrong answer"), (Test("f([])", "[2]", True), "timeout"))
    after = Observation("2 of 2 examples failed", (), 0, False, False, {"admissible": True, "failed": failed})
    assert words.render(after, task, False) == "Failed: [ 1 ] -> [ 1 2 ]; [ ] -> [ 2 ]\nProgram:\n"
    nothing = Observation("", (), 0, False, False, {"admissible": False, "failed": ()})
    assert words.render(nothing, task, False) == "This is no program.\nProgram:\n"


def test_what_is_read_after_a_failure_is_made_of_known_pieces(ids: Ids) -> None:
    world = CodeWorld(max_steps=2)
    for task in world.tasks("train")[:5]:
        tests = tuple((test, "wrong answer") for test in world.problem(task).tests if test.public)
        for info in ({"admissible": True, "failed": tests}, {"admissible": False, "failed": tests}):
            ids(world.render(Observation("", (), 0, False, False, info), task, False))


@pytest.mark.parametrize(
    ("argument", "text", "expected"),
    [
        ("int", "try 4 -> 7\ninput 4\noutput 7", ("f(4)", "7", "try 4 -> 7")),
        ("int", "input 4\noutput 8", ("f(4)", "8", "")),  # read, though it is false
        ("int", " \nI think\nso\ninput -4\noutput [ 1 2 ]\n", ("f(-4)", "[1, 2]", "I think\nso")),
        ("str", 'input " a b "\noutput " "', ("f('ab')", "''", "")),
        ("list", "input [ 3 -1 ]\noutput 0", ("f([3, -1])", "0", "")),
    ],
)
def test_a_written_test_is_read(argument: str, text: str, expected: tuple[str, str, str]) -> None:
    written = parse_test(problem(argument), text)
    assert written and (written.test.input, written.test.output, written.reasoning) == expected
    assert not written.test.public


@pytest.mark.parametrize(
    "text",
    ["", "try 4 -> 7", "input 4", "output 7", "output 7\ninput 4", "input 4\noutput", "input\noutput 7", "input 4 output 7",
     "input 4\noutput 7\nand so on", "input x\noutput 7", "input 4\noutput x", 'input " a "\noutput 7', "input [ 4 ]\noutput 7",
     "input 4.0\noutput 7", "input True\noutput 7", "input 4\noutput 1 2", "input f(4)\noutput 7", "input 4)+f(4\noutput 7",
     "input 4\n\noutput 7", "Input 4\nOutput 7"],
)  # fmt: skip
def test_a_malformed_test_is_none(text: str) -> None:
    assert parse_test(problem(), text) is None


def test_noise_never_makes_the_parser_fail() -> None:
    rng = random.Random(0)
    parts = [
        "input ",
        "output ",
        "try ",
        "\n",
        "4",
        "-",
        " ",
        '"',
        "'",
        "[",
        "]",
        "a",
        "x",
        "\\",
        "(",
        "\x00",
        "é",
        ",9" * 50,
    ]
    for _ in range(1500):
        parse_test(problem(), "".join(rng.choices(parts, k=rng.randrange(12))))


def test_the_rewriter_reads_the_test_that_fewest_programs_pass(tokenizer: Tokenizer) -> None:
    dialogue = WordDialogue(tokenizer)
    world = CodeWorld(knobs={"types": ("int",)})
    (task, *_) = world.tasks("train")
    hidden = [test for test in world.problem(task).tests if not test.public]
    passed = (
        (True, True, True, True),
        (True, False, True, True),
        (False, False, True, True),
        (True, True, False, True),
    )
    played = [
        Trajectory(task, i, i, dialogue, steps=[Turn("", "", "", 0, 0, 0, passed=tests)])
        for i, tests in enumerate(passed)
    ]
    reward = UnitTests(world, 1.0, 64, (64,), 1, "sequence", "published")
    critique = reward.critique(task, played, [[[]] for _ in played], "easier")
    x, y = hidden[1].input[2:-1], hidden[1].output
    told = f"{task.instruction}\nCritique: {x} -> {y} met by 50 %\nMake it easier:\n"
    assert world.rewrite_prompt(task, "easier", critique) == told
    assert f"\nCritique: {NO_CRITIQUE}\n" in world.rewrite_prompt(task, "harder", "")


def test_programs_and_edits_are_taken_as_they_are_and_no_second_solver_is_asked() -> None:
    assert words.action("def f(x): ...") == "def f(x): ..." and words.edit("drop 1") == "drop 1"
    assert words.second_prompt(problem(), "drop 1") == "" and words.SYSTEM == words.QUESTION == ""
