"""HumanEval, MBPP, APPS, Codeforces, CodeContests, LiveCodeBench: records become problems, or say why not."""

import base64
import json
import os
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rlanything_jax.envs.code.contests import (
    from_apps,
    from_code_contests,
    from_codeforces,
    from_live_code_bench,
)
from rlanything_jax.envs.code.humaneval import from_humaneval
from rlanything_jax.envs.code.mbpp import from_mbpp
from rlanything_jax.envs.code.problem import Problem, RecordError, Test

HUMANEVAL = {
    "task_id": "HumanEval/x",
    "prompt": 'import math\n\ndef half(n):\n    return n / 2\n\ndef double(n):\n    """Twice."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * n\n",
    "test": (
        "METADATA = {}\n\ndef check(candidate):\n    import random\n    assert candidate(2) == 4\n"
        "    assert abs(candidate(0.5) - 1.0) < 1e-6\n    assert True, 'talk'\n"
        "    for i in range(3):\n        x = random.randint(0, 9)\n        assert half(candidate(x)) == x\n"
        "    assert candidate(7) == double(7)\n"
    ),
}
MBPP = {
    "task_id": 12,
    "text": "Write a function to sort.",
    "code": "def put(x):\r\n  return sorted(x)",
    "test_setup_code": "",
    "test_list": ["assert put([2, 1]) == [1, 2]", "assert put({3}) == [3]"],
    "challenge_test_list": [],
}
APPS = {
    "id": 7,
    "description": "Say it.",
    "starter_code": "\ndef say(word, times=1):\n\t",
    "sample_io": [{"input": "no\n2", "output": ["nono"]}],
    "test_list": [{"input": "no\n2", "output": ["nono"]}, {"input": "a'b", "output": ["a'b"]}],
}
CODEFORCES = {
    "id": "codeforces-1",
    "prompt": (
        "<|im_start|>user\nYou will be given a question. \n\nQuestion: Add.\n\nInput\n\nTwo numbers.\n\n"
        "Read the inputs from stdin solve the problem ...\n<|im_end|>\n<|im_start|>assistant\n<think>\n"
    ),
    "input_output": json.dumps({"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}),
}
CODE_CONTESTS = {
    "name": "1_A. Add",
    "description": "Add.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["1 2\n", "3 4\n"], "output": ["3\n", "7\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(sum(map(int, input().split())))"]},
    "time_limit": {"seconds": 2, "nanos": 500_000_000},
}
LIVE_CODE_BENCH = {
    "question_id": "3", "question_content": "Add.", "starter_code": "", "metadata": "{}",
    "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3.5\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]),
}  # fmt: skip


def packed(data: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(data))).decode()


def test_humaneval() -> None:
    problem = from_humaneval(HUMANEVAL)
    assert problem.checker == "assertion"
    assert problem.tests[0] == Test("double(2)", "assert results[0] == 4")
    assert problem.tests[1] == Test("double(0.5)", "assert abs(results[0] - 1.0) < 1e-06")
    loop = problem.tests[2]
    drawn = [int(line[len("double(") : -1]) for line in loop.input.splitlines()]
    assert loop.output == "\n".join(
        [
            "def half(n):",
            "    return n / 2",
            *[f"assert half(results[{i}]) == {x}" for i, x in enumerate(drawn)],
        ]
    )
    assert len(drawn) == 3
    # Not compared with itself.
    assert problem.tests[3] == Test("double(7)", "assert results[0] == 14")
    assert problem.preamble == "import math\n\ndef half(n):\n    return n / 2".replace("\n\n", "\n")
    assert problem.solutions == (HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"],)


def test_mbpp() -> None:
    problem = from_mbpp(MBPP)
    assert problem.id == "mbpp/12"
    assert problem.entry_point == "put"
    assert problem.checker == "equal"
    assert problem.tests == (Test("put([2, 1])", "[1, 2]", public=True), Test("put({3})", "[3]"))


def test_mbpp_arguments_that_only_the_program_knows_stay_as_they_are() -> None:
    record = MBPP | {
        "code": "class Pair: ...\ndef put(a, b): ...",
        "test_list": ["assert put([Pair(1, 2)], int) == 3"],
    }
    assert from_mbpp(record).tests == (Test("put([Pair(1, 2)], int)", "3", public=True),)


def test_mbpp_assertions_with_imports() -> None:
    record = MBPP | {
        "prompt": "Sort.",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(put(2), 0.5, rel_tol=0.001)", "assert set(put(1)) == set([3])"],
    }
    problem = from_mbpp(record)
    assert problem.preamble == "import math"
    assert [test.output for test in problem.tests] == [
        "import math\nassert math.isclose(results[0], 0.5, rel_tol=0.001)",
        "assert set(results[0]) == {3}",
    ]


def test_apps_function() -> None:
    problem = from_apps(APPS)
    assert problem.entry_point == "say"
    assert problem.tests == (
        Test("say('no', 2)", "'nono'", public=True),
        Test('say("a\'b")', '"a\'b"'),
    )


def test_apps_program() -> None:
    case = {"input": "1 2\n", "output": ["3\n", "4\n"]}
    problem = from_apps(APPS | {"starter_code": "", "test_list": [case], "sample_io": []})
    assert problem.kind == "stdio"
    assert problem.tests == (Test("1 2\n", "3\n\n4\n"),)


def test_codeforces() -> None:
    problem = from_codeforces(CODEFORCES)
    assert problem.statement == "Add.\n\nInput\n\nTwo numbers."
    assert problem.tests == (Test("1 2", "3"), Test("3 4", "7"))
    assert problem.checker == "tokens"


def test_code_contests() -> None:
    problem = from_code_contests(CODE_CONTESTS)
    assert problem.tests == (Test("1 2\n", "3\n", public=True), Test("3 4\n", "7\n"))
    assert problem.solutions == ("print(sum(map(int, input().split())))",)
    assert problem.time_limit == 2.5


def test_code_contests_short_form() -> None:
    record = {"id": 4, "question": "Add.", "test_input": ["1 2"], "test_output": ["3"], "test_time_limit": 2}
    problem = from_code_contests(record)
    assert (problem.statement, problem.tests, problem.time_limit) == ("Add.", (Test("1 2", "3"),), 2.0)


@pytest.mark.parametrize("pack", [str, packed], ids=["plain", "packed"])
def test_live_code_bench_program(pack: Callable[[str], str]) -> None:
    problem = from_live_code_bench(
        LIVE_CODE_BENCH | {"private_test_cases": pack(LIVE_CODE_BENCH["private_test_cases"])}
    )
    assert problem.tests == (Test("1 2\n", "3.5\n", public=True), Test("3 4\n", "7\n"))
    assert problem.checker == "float"


def test_live_code_bench_method() -> None:
    case = {"input": '[1, null]\n"a"', "output": "true", "testtype": "functional"}
    problem = from_live_code_bench(
        LIVE_CODE_BENCH
        | {
            "metadata": '{"func_name": "add"}',
            "public_test_cases": json.dumps([case]),
            "private_test_cases": "[]",
        }
    )
    assert problem.tests == (Test("Solution().add([1, None], 'a')", "True", public=True),)
    assert problem.entry_point == "add"


def test_a_pickle_in_a_data_file_calls_nothing() -> None:
    class Call:
        def __reduce__(self) -> tuple:
            return os.system, ("true",)

    with pytest.raises(
        RecordError, match="private_test_cases: cannot be decoded: the pickle asks for .*system"
    ):
        from_live_code_bench(LIVE_CODE_BENCH | {"private_test_cases": packed(Call())})


APPS_CASE = {"input": "no\n2", "output": ["nono"]}


@pytest.mark.parametrize(
    ("convert", "record", "message"),
    [
        (
            from_humaneval,
            HUMANEVAL | {"test": "def check(candidate):\n    pass"},
            "tests: the problem has none",
        ),
        (from_humaneval, HUMANEVAL | {"test": "def verify(): ..."}, "test: defines no check"),
        (from_humaneval, HUMANEVAL | {"prompt": None}, "prompt: is missing"),
        (from_humaneval, HUMANEVAL | {"prompt": 3}, "prompt: must be text, got int"),
        (from_humaneval, HUMANEVAL | {"canonical_solution": "return ("}, "canonical_solution: is not Python"),
        (
            from_humaneval,
            HUMANEVAL | {"test": "def check(candidate):\n    assert open(candidate(1))"},
            "test: cannot be turned into tests: Unsupported: the name 'open'",
        ),
        (from_mbpp, MBPP | {"test_list": []}, "test_list: the problem has no tests"),
        (from_mbpp, MBPP | {"test_list": ["assert put(1) =="]}, "test_list: is not Python"),
        (
            from_mbpp,
            MBPP | {"test_list": ["assert 1 == 1"]},
            "test_list: calls no function that the solution",
        ),
        (
            from_mbpp,
            MBPP | {"test_list": ["assert put(1) == 1", None]},
            r"test_list\[1\]: must be text, got None",
        ),
        (from_apps, APPS | {"test_list": []}, "test_list: the problem has no tests"),
        (from_apps, APPS | {"test_list": [{"input": "1"}]}, r"test_list\[0\].output: is missing"),
        (
            from_apps,
            APPS | {"test_list": [{"input": "1", "output": []}]},
            r"test_list\[0\].output: is missing",
        ),
        (
            from_apps,
            APPS | {"test_list": [APPS_CASE | {"input": "1\n2\n3"}]},
            "3 lines for the 2 arguments of say",
        ),
        (
            from_apps,
            APPS | {"test_list": [APPS_CASE | {"input": "1\n2"}]},
            "argument 'word' of say could be text or",
        ),
        (from_apps, APPS | {"starter_code": "x = 1\n"}, "starter_code: "),
        (from_codeforces, CODEFORCES | {"prompt": "Add."}, "prompt: holds no question"),
        (from_codeforces, CODEFORCES | {"input_output": "{"}, "input_output: is not JSON"),
        (
            from_codeforces,
            CODEFORCES | {"input_output": '{"inputs": ["1", "2"], "outputs": ["1"]}'},
            "input_output.outputs: 1 outputs for 2 inputs",
        ),
        (
            from_code_contests,
            CODE_CONTESTS | {"private_tests": {"input": ["1"], "output": [None]}},
            r"output\[0\]: must be text, got None",
        ),
        (
            from_code_contests,
            CODE_CONTESTS | {"public_tests": None, "generated_tests": None},
            "tests: the problem has none",
        ),
        (
            from_live_code_bench,
            LIVE_CODE_BENCH | {"private_test_cases": "?"},
            "private_test_cases: cannot be decoded",
        ),
        (
            from_live_code_bench,
            LIVE_CODE_BENCH | {"public_test_cases": '[{"input": "1", "testtype": "stdin"}]'},
            r"public_test_cases\[0\].output: must be text, got None",
        ),
    ],
)
def test_a_bad_record_names_its_field(convert: Callable, record: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        convert(record)


def test_every_problem_has_its_licence_and_source() -> None:
    problems: list[Problem] = [
        from_humaneval(HUMANEVAL),
        from_mbpp(MBPP),
        from_apps(APPS),
        from_codeforces(CODEFORCES),
        from_code_contests(CODE_CONTESTS),
        from_live_code_bench(LIVE_CODE_BENCH),
    ]
    assert {problem.source: problem.licence for problem in problems} == {
        "humaneval": "MIT",
        "mbpp": "CC-BY-4.0",
        "apps": "MIT",
        "codeforces": "MIT",
        "code_contests": "CC-BY-4.0",
        "live_code_bench": "CC-BY-4.0",
    }
