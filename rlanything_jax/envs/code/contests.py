"""Contest problems, most of them programs that read stdin: APPS, Codeforces, CodeContests, LiveCodeBench.

The expected output is one right answer. Where a problem has several, a program that prints another one fails.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import itertools
import pickle
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlanything_jax.envs.code.checker import text_checker
from rlanything_jax.envs.code.fields import code, decoded, field, text, texts
from rlanything_jax.envs.code.problem import Problem, RecordError, Test

_PYTHON3 = 3  # CodeContests' number of the language
_CHAT = re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL)
_QUESTION = re.compile(r"Question: (.*)\n\nRead the inputs from stdin", re.DOTALL)


def from_apps(record: Mapping[str, Any]) -> Problem:
    """Converts a record {id, description, starter_code, sample_io, test_list} of the APPS selection.

    Its arguments lost their quotes. An argument that is sometimes a literal and sometimes not could be text or a
    number, and makes a RecordError, as does a number of lines that does not fit the function.
    """
    problem: dict[str, Any] = {"id": f"apps/{field(record, 'id')}", "statement": text(record, "description")}
    cases = [
        (name, index, case) for name in ("sample_io", "test_list") for index, case in _cases(record, name)
    ]
    if not any(name == "test_list" for name, _, _ in cases):
        raise RecordError("test_list", "the problem has no tests")
    start = record.get("starter_code", "").strip()
    if not start:
        tests = [
            Test(text(case, "input"), "\n".join(texts(case, "output")), name == "sample_io")
            for name, _, case in cases
        ]
        return _stdio(**problem, tests=tests, source="apps", licence="MIT")

    defined = code(f"{start}\n  pass", "starter_code").body
    function = defined[-1]
    if not isinstance(function, ast.FunctionDef):
        raise RecordError("starter_code", f"defines no function: {start[:80]!r}")
    arguments = _literals([text(case, "input") for _, _, case in cases], function)
    tests = []
    for (name, index, case), values in zip(cases, arguments, strict=True):
        output = field(case, "output")
        if not isinstance(output, list) or len(output) != 1:
            raise RecordError(f"{name}[{index}].output", f"must be a list of one value, got {output!r}")
        tests.append(Test(f"{function.name}({', '.join(values)})", repr(output[0]), name == "sample_io"))
    return Problem(
        **problem,
        kind="call",
        tests=_unique(tests),
        checker="json_equal",
        entry_point=function.name,
        source="apps",
        licence="MIT",
    )


def from_codeforces(record: Mapping[str, Any]) -> Problem:
    """Converts a record {prompt, input_output}: a chat prompt, whose wrapping is removed, and tests as JSON."""
    prompt = text(record, "prompt")
    turn = _CHAT.search(prompt)
    question = turn and _QUESTION.search(turn[1])
    if not question:
        raise RecordError("prompt", f"holds no question in the expected wrapping: {prompt[:80]!r}")
    cases = decoded(text(record, "input_output"), "input_output")
    tests = _pairs(cases, "inputs", "outputs", "input_output", public=False)
    return _stdio(
        id=f"codeforces/{field(record, 'id')}",
        statement=question[1].strip(),
        tests=tests,
        source="codeforces",
        licence="MIT",
    )


def from_code_contests(record: Mapping[str, Any]) -> Problem:
    """Converts a record of CodeContests (Li et al., 2022, arXiv 2203.07814), of which Python 3 solutions are kept.

    The short form {question, test_input, test_output}, perhaps with test_time_limit, is read as well.
    """
    if "test_input" in record:
        return _stdio(
            id=f"code_contests/{field(record, 'id')}",
            statement=text(record, "question"),
            tests=_pairs(record, "test_input", "test_output", "", public=False),
            time_limit=float(record.get("test_time_limit") or 5),
            source="code_contests",
            licence="CC-BY-4.0",
        )
    tests = list(
        itertools.chain.from_iterable(
            _pairs(record[name], "input", "output", name, public=name == "public_tests")
            for name in ("public_tests", "private_tests", "generated_tests")
            if record.get(name)
        )
    )
    limit = record.get("time_limit") or {}
    solutions = record.get("solutions") or {"language": [], "solution": []}
    languages = zip(field(solutions, "language"), texts(solutions, "solution"), strict=False)
    return _stdio(
        id=f"code_contests/{text(record, 'name')}",
        statement=text(record, "description"),
        tests=tests,
        solutions=tuple(solution for language, solution in languages if language in (_PYTHON3, "PYTHON3")),
        time_limit=limit.get("seconds", 0) + limit.get("nanos", 0) / 1e9 or 5.0,
        source="code_contests",
        licence="CC-BY-4.0",
    )


def from_live_code_bench(record: Mapping[str, Any]) -> Problem:
    """Converts a record of LiveCodeBench's code generation (Jain et al., 2024, arXiv 2403.07974)."""
    tests, kinds = [], set()
    for name, cases in (
        ("public_test_cases", decoded(text(record, "public_test_cases"), "public_test_cases")),
        ("private_test_cases", _private(text(record, "private_test_cases"))),
    ):
        for index, case in enumerate(cases):
            where = f"{name}[{index}]"
            for key in ("input", "output", "testtype"):
                if not isinstance(case.get(key), str):
                    raise RecordError(f"{where}.{key}", f"must be text, got {case.get(key)!r}")
            kinds.add(case["testtype"])
            tests.append((where, Test(case["input"], case["output"], name == "public_test_cases")))
    problem: dict[str, Any] = {
        "id": f"live_code_bench/{text(record, 'question_id')}",
        "statement": text(record, "question_content"),
        "source": "live_code_bench",
        "licence": "CC-BY-4.0",
    }
    if kinds <= {"stdin"}:
        return _stdio(**problem, tests=[test for _, test in tests])
    if kinds != {"functional"}:
        raise RecordError("testtype", f"must be 'stdin' or 'functional' for all tests, got {sorted(kinds)}")
    name = text(decoded(text(record, "metadata"), "metadata"), "func_name")
    return Problem(
        **problem,
        kind="call",
        tests=_unique([_method_test(name, test, where) for where, test in tests]),
        checker="json_equal",
        entry_point=name,
        preamble="from typing import *",
    )


def _stdio(
    *, id: str, statement: str, tests: Iterable[Test], source: str, licence: str, **rest: Any
) -> Problem:
    unique = _unique(tests)
    return Problem(
        id=id,
        statement=statement,
        kind="stdio",
        tests=unique,
        checker=text_checker([test.output for test in unique]),
        source=source,
        licence=licence,
        **rest,
    )


def _unique(tests: Iterable[Test]) -> tuple[Test, ...]:
    """The first test of each input: public ones come first, and examples are often among the hidden tests too."""
    first: dict[str, Test] = {}
    for test in tests:
        first.setdefault(test.input, test)
    return tuple(first.values())


def _pairs(record: Mapping[str, Any], inputs: str, outputs: str, where: str, *, public: bool) -> list[Test]:
    prefix = f"{where}." if where else ""
    given, expected = texts(record, inputs), texts(record, outputs)
    if len(given) != len(expected):
        raise RecordError(f"{prefix}{outputs}", f"{len(expected)} outputs for {len(given)} inputs")
    return [Test(*pair, public) for pair in zip(given, expected, strict=True)]


def _cases(record: Mapping[str, Any], name: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    cases = field(record, name)
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise RecordError(name, "must be a list of {input, output}")
    for index, case in enumerate(cases):
        for key in ("input", "output"):
            if case.get(key) in (None, []):
                raise RecordError(f"{name}[{index}].{key}", "is missing")
        yield index, case


def _literals(inputs: Sequence[str], function: ast.FunctionDef) -> list[list[str]]:
    """The arguments of each call as Python literals, from inputs with one argument a line."""
    names = [argument.arg for argument in function.args.args]
    least = len(names) - len(function.args.defaults)
    rows = [[given] if len(names) == 1 else given.split("\n") for given in inputs]
    for row in rows:
        if not least <= len(row) <= len(names):
            raise RecordError(
                "test_list", f"{len(row)} lines for the {len(names)} arguments of {function.name}"
            )
    for index, name in enumerate(names):
        literal = {_is_literal(row[index]) for row in rows if index < len(row)}
        if len(literal) == 2:
            raise RecordError("test_list", f"argument {name!r} of {function.name} could be text or a literal")
        if literal == {False}:
            for row in rows:
                row[index : index + 1] = map(repr, row[index : index + 1])
    return rows


def _is_literal(source: str) -> bool:
    try:
        ast.literal_eval(source)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return "\n" not in source


def _method_test(name: str, test: Test, where: str) -> Test:
    arguments = [repr(decoded(line, f"{where}.input")) for line in test.input.splitlines() if line.strip()]
    expected = repr(decoded(test.output, f"{where}.output"))
    return Test(f"Solution().{name}({', '.join(arguments)})", expected, test.public)


def _private(encoded: str) -> Any:
    """Tests as JSON, or as JSON that was pickled, deflated and written in base 64."""
    if encoded.lstrip().startswith("["):
        return decoded(encoded, "private_test_cases")
    try:
        packed = zlib.decompress(base64.b64decode(encoded))
        return decoded(_Text(io.BytesIO(packed)).load(), "private_test_cases")
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, TypeError) as error:
        raise RecordError("private_test_cases", f"cannot be decoded: {error}") from error


class _Text(pickle.Unpickler):
    """Unpickles plain data only: a pickle from a data file may name any function to be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}")
