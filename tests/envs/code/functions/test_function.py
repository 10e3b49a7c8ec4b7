"""Functions: a problem whose hidden tests tell it from what somebody may take it for."""

from typing import Any

import pytest

from rlanything_jax.envs.code.functions.function import INPUTS, Function, Step, chain, flaw, mistakes, write
from rlanything_jax.envs.code.functions.generate import generate
from rlanything_jax.envs.code.functions.ops import OPS


def steps(*keys: str) -> tuple[Step, ...]:
    """'int.add 3' -> the step that adds 3."""
    named = [key.partition(" ") for key in keys]
    return tuple(Step(OPS[name], next(k for k in OPS[name].constants if str(k) == (constant or "None")))
                 for name, _, constant in named)  # fmt: skip


@pytest.fixture(scope="module")
def functions() -> list[Function]:
    return [generate(seed, steps=(1, 5), example=seed % 2 == 0) for seed in range(400)]


def returned(program: str, call: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return eval(call, namespace)


def test_statement_program_and_tests_of_a_function_by_hand() -> None:
    function = Function("int", steps("int.add 3", "int.double"), example=True)
    assert function.program == "def f(x):\n    x = x + 3\n    x = x + x\n    return x"
    assert [function(x) for x in (0, 4, -9)] == [6, 14, -12]
    assert chain(function.ops, 4) == [4, 7, 14]
    problem = function.problem
    first = problem.tests[0]
    assert problem.statement == (
        f"Take an integer x. Add 3. Double it. Return the result.\nExample: {first.input} = {first.output}"
    )
    assert (problem.kind, problem.checker, problem.entry_point) == ("call", "equal", "f")
    assert problem.solutions == (function.program,)


def test_the_reference_program_passes_all_tests(functions: list[Function]) -> None:
    for function in functions:
        tests = function.problem.tests
        for test in tests:
            assert repr(returned(function.program, test.input)) == test.output
        assert sum(test.public for test in tests) == 2 and 4 <= sum(not test.public for test in tests) <= 6
        assert len({test.input for test in tests}) == len(tests)
        assert len({test.output for test in tests if not test.public}) > 1
        assert function.example == ("\nExample: " in function.problem.statement)


def test_hidden_tests_catch_mistakes_that_any_input_catches(functions: list[Function]) -> None:
    caught = missed = 0
    for function in functions:
        hidden = [test for test in function.problem.tests if not test.public]
        for i, step in enumerate(function.ops):
            for mistake in (mistake for kind in mistakes(step) for mistake in kind):
                changed = [*function.ops[:i], *mistake, *function.ops[i + 1 :]]
                if all(chain(changed, x)[-1] == function(x) for x in INPUTS[function.argument]):
                    continue
                program = write(changed)
                if any(repr(returned(program, test.input)) != test.output for test in hidden):
                    caught += 1
                else:
                    missed += 1
    assert missed < 0.005 * caught


def test_equal_functions_have_equal_tests_however_they_are_said() -> None:
    plain = Function("list", steps("list.reverse", "list.keep_above 2"))
    said = Function("list", tuple(step._replace(wording=1) for step in plain.ops), (1, 1))
    assert plain.key == said.key and plain.problem.tests == said.problem.tests
    assert plain.problem.id == said.problem.id and plain.problem.statement != said.problem.statement


def test_mistakes_are_siblings_neighbours_and_nothing() -> None:
    def keys(name: str) -> list[list[str]]:
        return [["; ".join(s.key for s in mistake) for mistake in kind] for kind in mistakes(steps(name)[0])]

    assert keys("int.add 3") == [["int.sub 3", "int.sub_above 3"], ["int.add 2", "int.add 4"], [""]]
    assert keys("int.add 9") == [["int.sub 9", "int.sub_above 9"], ["int.add 8"], [""]]
    assert keys("str.len") == [["str.count c"]]  # without it the type would be another


@pytest.mark.parametrize(
    ("argument", "keys", "reason"),
    [
        ("int", (), "1 to 5 steps"),
        ("int", ("int.add 1", "int.double") * 3, "1 to 5 steps"),
        ("str", ("int.add 1",), "needs a value of type int"),
        ("str", ("str.len", "str.reverse"), "needs a value of type str"),
        ("int", ("int.times 4", "int.times 4"), "too large"),
        ("str", ("str.repeat",), "too large"),
        ("int", ("int.abs", "int.at_least 0"), "makes no difference"),
        ("int", ("int.mod 5", "int.abs"), "makes no difference"),
        ("int", ("int.span 3", "list.smallest"), "makes no difference"),
        ("int", ("int.neg", "int.neg"), "makes no difference"),
        ("str", ("str.count a", "int.div 4"), "same output"),
    ],
)
def test_what_makes_no_sensible_function_is_told(argument: str, keys: tuple[str, ...], reason: str) -> None:
    assert reason in flaw(argument, steps(*keys))


def test_sensible_functions_have_no_flaw(functions: list[Function]) -> None:
    assert not any(flaw(function.argument, function.ops) for function in functions[:50])
    assert flaw("int", steps("int.abs")) == ""


def test_statements_are_varied(functions: list[Function]) -> None:
    assert len({function.problem.statement for function in functions}) > 0.9 * len(functions)
    assert {op.name for function in functions for op, _, _ in function.ops} == set(OPS)
    assert {wording for function in functions for _, _, wording in function.ops} == {0, 1}
