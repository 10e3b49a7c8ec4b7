import ast

import pytest

from rlanything_jax.envs.code.interpreter import Interpreter, Unsupported

PROGRAMS = [
    "out = [i * j for i in range(4) if i % 2 for j in (1, 2)]",
    "out = {k: v for k, v in zip('ab', [1, 2])}",
    "out = []\nfor i, (a, b) in enumerate([(1, 2), (3, 4)]):\n"
    "    if a > 1:\n        out.append(b - i)\n    else:\n        out += [0]",
    "def f(a, b):\n    if a > b:\n        return a\n    return f(b, a)\nout = f(2, 5) ** 2 // 3 % 7",
    "x = [5, 6, 3, 4]\nx[::3] = sorted(x[::3])\nout = tuple(x[1:]), x[-1], not x",
    "import math\nfrom math import sqrt as root\nout = math.floor(root(17)) if 1 < 2 <= 2 else None",
    "out = ''.join(chr((ord(c) + 5 - ord('a')) % 26 + ord('a')) for c in 'xyz').upper()",
    "out = [1 in {1, 2}, 'a' not in 'b', 3 and 0 or 'x', -2 & 7 | 8 ^ 1, +True, ~1]",
    "import copy\nx = [[1]]\ny = copy.deepcopy(x)\ny[0][0] = 2\nout = (x, y, x is y)",
]
ESCAPES = [
    "().__class__",
    "'{0.__class__}'.format(1)",
    "'%s' % [1]",
    "open('x')",
    "__import__('os')",
    "getattr(1, 'real')",
    "eval('1')",
    "(lambda: 1)()",
    "[].append.__self__",
    "str.mro()",
    "math.__dict__",
    "f'{1}'",
]


@pytest.mark.parametrize("source", PROGRAMS)
def test_it_agrees_with_python(source: str) -> None:
    ours: dict = {}
    theirs: dict = {}
    Interpreter(ours).run(source)
    exec(source, theirs)
    assert ours["out"] == theirs["out"]


@pytest.mark.parametrize("source", ESCAPES)
def test_nothing_leads_out_of_it(source: str) -> None:
    with pytest.raises(Unsupported):
        Interpreter().run(f"import math\n{source}")


def test_what_would_not_end_is_ended() -> None:
    with pytest.raises(ValueError, match="a number of"):
        Interpreter().run("9 ** 9 ** 9")
    with pytest.raises(ValueError, match="a sequence of"):
        Interpreter().run("'a' * 10 ** 9")
    with pytest.raises(Unsupported, match="steps"):
        Interpreter().run("for i in range(10 ** 9):\n    pass")


def test_random_numbers_are_the_same_every_time() -> None:
    drawn = []
    for _ in range(2):
        names: dict = {}
        Interpreter(names).run("import random\nx = [random.randint(0, 9) for _ in range(20)]")
        drawn.append(names["x"])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 1


def test_what_is_not_known_becomes_an_expression() -> None:
    interpreter = Interpreter(recorded="f")
    interpreter.run("n = 3\nassert abs(f(n + 1, [n]) - 2.0 / 4) < 1e-6\nassert not f(2)\nassert n == 3")
    assert [ast.unparse(call) for call in interpreter.calls] == ["f(4, [3])", "f(2)"]
    assert [ast.unparse(check) for check in interpreter.checks] == [
        "abs(results[0] - 0.5) < 1e-06",
        "not results[1]",
    ]


def test_a_decision_on_what_is_not_known_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"depends on what the program returns: results\[0\]"):
        Interpreter(recorded="f").run("if f(1):\n    pass")
