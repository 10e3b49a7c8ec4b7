import time

import pytest

from rlanything_jax.envs.code.checker import CheckerError, check, text_checker


def passes(kind: str, name: str, expected: str, got: object) -> bool:
    return check(kind, name, expected, got, problem="p1")


@pytest.mark.parametrize(
    ("name", "expected", "got", "passed"),
    [
        ("exact", "1 2\n", "1 2", True),
        ("exact", "1 2", "1  2", False),
        ("exact", "1\n2", "1 \n2\n\n", True),
        ("exact", " 1", "1", False),
        ("tokens", "1  2\n3", "1 2 3\n", True),
        ("tokens", "1 2", "12", False),
        ("tokens", "Yes", "yes", False),
        ("tokens", "", " \n", True),
        ("float", "0.5", "0.5000004", True),
        ("float", "0.5", "0.500002", False),
        ("float", "2000000.5", "2000001.5", True),  # relative: 5e-7
        ("float", "2.0", "2", True),
        ("float", "2.0", "two", False),
        ("float", "0.5 0.5", "0.5", False),
        ("float", "0.5", "nan", False),
        ("float", "YES 0.25", "YES 0.2500001", True),
    ],
)
def test_text_is_compared(name: str, expected: str, got: str, passed: bool) -> None:
    assert passes("stdio", name, expected, got) is passed


def test_a_large_integer_is_not_met_by_its_neighbour() -> None:
    # Within 1e-6 of it, relatively.
    assert not passes("stdio", "float", "0.5 1000000007", "0.5 1000000008")


def test_tolerance_is_chosen_where_decimals_are_expected() -> None:
    assert text_checker(["3 4", "5"]) == "tokens"
    assert text_checker(["3 4", "YES 0.5"]) == "float"
    assert text_checker(["v1.2.3 a.b ."]) == "tokens"


@pytest.mark.parametrize(
    ("name", "expected", "value", "passed"),
    [
        ("equal", "8", 8, True),
        ("equal", "(4, 5)", (4, 5), True),
        ("equal", "(4, 5)", [4, 5], False),
        ("equal", "True", 1, True),  # as Python's ==, and the assertions of data sets, have it
        ("equal", "None", None, True),
        ("json_equal", "[4, [5]]", (4, (5,)), True),
        ("json_equal", "{'1': 2}", {1: 2}, True),
        ("json_equal", "[4, 5]", [5, 4], False),
        ("assertion", "assert abs(results[0] - 0.33) < 1e-6", 0.3300000001, True),
        ("assertion", "assert abs(results[0] - 0.33) < 1e-6", 0.34, False),
        ("assertion", "assert abs(results[0] - 0.33) < 1e-6", "text", False),
        ("assertion", "assert set(results[0]) == {4, 5}", [5, 4, 4], True),
        ("assertion", "assert results[0] is True", 1, False),
    ],
)
def test_values_are_compared(name: str, expected: str, value: object, passed: bool) -> None:
    assert passes("call", name, expected, [value]) is passed


def test_a_checker_that_raises_names_the_problem_and_is_no_pass() -> None:
    with pytest.raises(CheckerError, match=r"checker 'equal' of problem 'p1' raised ValueError"):
        passes("call", "equal", "f(2)", [2])
    with pytest.raises(
        CheckerError, match=r"checker 'assertion' of problem 'p1' raised Unsupported: .*'open'"
    ):
        passes("call", "assertion", "assert open(results[0])", ["/etc/passwd"])


@pytest.mark.parametrize("name", ["exact", "tokens", "float"])
def test_200_kb_of_output_are_compared_at_once(name: str) -> None:
    text = "0.25 12345\n" * 18_182
    assert len(text) > 200_000
    start = time.process_time()
    assert passes("stdio", name, text, text)
    assert not passes("stdio", name, text, text[:-2] + "4\n")
    assert time.process_time() - start < 0.5
