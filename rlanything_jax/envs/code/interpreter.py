"""Interprets the small part of Python that the tests of data sets are written in, without running it as Python.

The assertions of MBPP and HumanEval compute (`abs(f(x) - 0.5) < 1e-6`, loops with random inputs, helper
functions). They come from data files and meet values from untrusted programs, so they are neither given to
`eval` nor put where the program runs. Plain values, a table of functions and their methods are all there is: no
attribute leads out of it, and a count of steps ends what would not end. Random numbers are the same every time.

A value may also be `Unknown`: then what is computed from it is the expression that computes it. `assertions`
uses that to turn the tests of a data set into calls and statements about what the calls return.
"""

from __future__ import annotations

import ast
import builtins
import copy
import math
import operator
import random
import string
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

MAX_STEPS = 300_000
MAX_SIZE = 1_000_000  # items of a repeated sequence, bits of a power


class Unsupported(ValueError):
    """Python outside the part that is interpreted."""


class Unknown:
    """A value that is only known as the expression `node`."""

    def __init__(self, node: ast.expr) -> None:
        self.node = node


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


_BUILTINS = """abs all any bool chr dict divmod enumerate float frozenset int isinstance len list max min ord range reversed
round set sorted str sum tuple zip"""
BUILTINS = {name: getattr(builtins, name) for name in _BUILTINS.split()} | {"print": lambda *values: None}

BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda left, right: _product(left, right),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: lambda left, right: _remainder(left, right),
    ast.Pow: lambda left, right: _power(left, right),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
UNARY: Mapping[type, Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
# Their methods may be called; `format` of a string reads attributes, and is left out.
_WITH_METHODS = (str, list, dict, set, frozenset, tuple, random.Random)
_FORBIDDEN = ("format", "format_map")


class Interpreter:
    """Runs statements on variables that live in `names`.

    A call of the function `recorded` is not made but added to `calls`, and its value is the unknown `results[i]`,
    i counting the calls. `checks` are the unknown conditions that were asserted.
    """

    def __init__(self, names: dict[str, Any] | None = None, *, recorded: str = "") -> None:
        self.calls: list[ast.Call] = []
        self.checks: list[ast.expr] = []
        self._recorded = recorded
        self._names: ChainMap[str, Any] = ChainMap({} if names is None else names)
        self._modules = _modules()
        self._steps = 0

    def run(self, source: str | list[ast.stmt]) -> None:
        """Runs `source`. AssertionError where an assertion is false; Unsupported; else what Python would raise."""
        self._block(ast.parse(source).body if isinstance(source, str) else source)

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        self._count()
        match node:
            case ast.Expr():
                self.value(node.value)
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._bind(target, value)
            case ast.AugAssign():
                left = self.value(node.target)
                self._bind(node.target, _binary(node.op, left, self.value(node.value)))
            case ast.For():
                for item in _known(self.value(node.iter)):
                    self._count()
                    self._bind(node.target, item)
                    self._block(node.body)
            case ast.If():
                self._block(node.body if _known(self.value(node.test)) else node.orelse)
            case ast.Assert():
                value = self.value(node.test)
                if isinstance(value, Unknown):
                    self.checks.append(value.node)
                elif not value:
                    raise AssertionError(ast.unparse(node.test))
            case ast.FunctionDef():
                self._names[node.name] = self._function(node)
            case ast.Return():
                raise _Return(self.value(node.value) if node.value else None)
            case ast.Import():
                for alias in node.names:
                    if alias.name in self._modules:  # another one is missed where it is used
                        self._names[alias.asname or alias.name] = self._modules[alias.name]
            case ast.ImportFrom():
                module = self._modules.get(node.module or "")
                for alias in node.names:
                    if hasattr(module, alias.name):
                        self._names[alias.asname or alias.name] = getattr(module, alias.name)
            case ast.Pass():
                pass
            case _:
                raise Unsupported(f"a statement of this kind: {_line(node)}")

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, perhaps Unknown."""
        self._count()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                if node.id not in self._names and node.id not in BUILTINS:
                    raise Unsupported(f"the name {node.id!r}")
                return self._names[node.id] if node.id in self._names else BUILTINS[node.id]
            case ast.List():
                return [self.value(item) for item in node.elts]
            case ast.Tuple():
                return tuple(self.value(item) for item in node.elts)
            case ast.Set():
                return {_known(self.value(item)) for item in node.elts}
            case ast.Dict() if None not in node.keys:
                pairs = zip(node.keys, node.values, strict=True)
                return {_known(self.value(key)): _known(self.value(value)) for key, value in pairs if key}
            case ast.UnaryOp():
                value = self.value(node.operand)
                if isinstance(value, Unknown):
                    return Unknown(ast.UnaryOp(node.op, value.node))
                return UNARY[type(node.op)](value)
            case ast.BinOp():
                return _binary(node.op, self.value(node.left), self.value(node.right))
            case ast.BoolOp():
                return self._bool_op(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self.value(node.body if _known(self.value(node.test)) else node.orelse)
            case ast.Call():
                return self._call(node)
            case ast.Attribute():
                return _attribute(self.value(node.value), node.attr)
            case ast.Subscript():
                return _known(self.value(node.value))[self._index(node.slice)]
            case ast.ListComp() | ast.GeneratorExp():
                return [self.value(node.elt) for _ in self._loops(node.generators)]
            case ast.SetComp():
                return {_known(self.value(node.elt)) for _ in self._loops(node.generators)}
            case ast.DictComp():
                loops = self._loops(node.generators)
                return {_known(self.value(node.key)): _known(self.value(node.value)) for _ in loops}
        raise Unsupported(f"an expression of this kind: {_line(node)}")

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise Unsupported(f"more than {MAX_STEPS} steps")

    def _bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._names[target.id] = value
            case ast.Tuple() | ast.List():
                for part, item in zip(target.elts, _known(value), strict=True):
                    self._bind(part, item)
            case ast.Subscript():
                _known(self.value(target.value))[self._index(target.slice)] = value
            case _:
                raise Unsupported(f"an assignment to {ast.unparse(target)}")

    def _index(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Slice):
            return _known(self.value(node))
        parts = (node.lower, node.upper, node.step)
        return slice(*[None if part is None else _known(self.value(part)) for part in parts])

    def _bool_op(self, node: ast.BoolOp) -> Any:
        for operand in node.values:
            value = _known(self.value(operand))
            if bool(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _compare(self, node: ast.Compare) -> Any:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        if any(map(_has_unknown, values)):
            first, *rest = map(lifted, values)
            return Unknown(ast.Compare(first, node.ops, rest))
        pairs = zip(node.ops, values, values[1:], strict=False)
        return all(COMPARE[type(op)](left, right) for op, left, right in pairs)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == self._recorded:
            return self._record(node)
        function = _known(self.value(node.func))
        if any(isinstance(argument, ast.Starred) for argument in node.args) or not callable(function):
            raise Unsupported(f"a call of this kind: {_line(node)}")
        values = [self.value(argument) for argument in node.args]
        named = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if any(map(_has_unknown, (*values, *named.values()))):
            keywords = [ast.keyword(name, lifted(value)) for name, value in named.items()]
            return Unknown(ast.Call(node.func, [lifted(value) for value in values], keywords))
        return function(*values, **named)

    def _record(self, node: ast.Call) -> Unknown:
        arguments = [self._argument(argument) for argument in node.args]
        keywords = [ast.keyword(keyword.arg, self._argument(keyword.value)) for keyword in node.keywords]
        self.calls.append(ast.Call(node.func, arguments, keywords))
        index = ast.Constant(len(self.calls) - 1)
        return Unknown(ast.Subscript(ast.Name("results", ast.Load()), index, ast.Load()))

    def _argument(self, node: ast.expr) -> ast.expr:
        """What a recorded call is given: its value, or, where only the program knows it, the expression itself."""
        try:
            value = self.value(node)
            if not _has_unknown(value):
                return lifted(value)
        except Unsupported:
            return node
        raise Unsupported(f"a call on the result of another: {_line(node)}")

    def _function(self, node: ast.FunctionDef) -> Callable[..., Any]:
        names = [argument.arg for argument in node.args.args]

        def call(*values: Any) -> Any:
            outer, self._names = self._names, self._names.new_child(dict(zip(names, values, strict=True)))
            try:
                self._block(node.body)
            except _Return as ending:
                return ending.value
            finally:
                self._names = outer
            return None

        return call

    def _loops(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Binds the variables of a comprehension, one combination after another."""
        first, *rest = generators
        outer = self._names
        for item in _known(self.value(first.iter)):
            self._count()
            self._names = outer.new_child()
            self._bind(first.target, item)
            if all(_known(self.value(condition)) for condition in first.ifs):
                if rest:
                    yield from self._loops(rest)
                else:
                    yield None
        self._names = outer


def lifted(value: Any) -> ast.expr:
    """The expression of a value that may hold unknown ones. Unsupported where it has none."""
    if isinstance(value, Unknown):
        return value.node
    if type(value) is list:
        return ast.List([lifted(item) for item in value], ast.Load())
    if type(value) is tuple:
        return ast.Tuple([lifted(item) for item in value], ast.Load())
    try:
        ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        raise Unsupported(f"a value that cannot be written down: {value!r}") from None
    return ast.parse(repr(value), mode="eval").body


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if _has_unknown(left) or _has_unknown(right):
        return Unknown(ast.BinOp(lifted(left), op, lifted(right)))
    if type(op) not in BINARY:
        raise Unsupported(f"the operator {type(op).__name__}")
    return BINARY[type(op)](left, right)


def _known(value: Any) -> Any:
    if isinstance(value, Unknown):
        raise Unsupported(f"a decision that depends on what the program returns: {ast.unparse(value.node)}")
    return value


def _has_unknown(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_unknown, value))
    return isinstance(value, Unknown)


def _attribute(owner: Any, name: str) -> Any:
    # A namespace is one of `_modules`; of everything else only methods of plain values are in reach.
    if isinstance(owner, SimpleNamespace) and hasattr(owner, name) and not name.startswith("_"):
        return getattr(owner, name)
    if isinstance(owner, _WITH_METHODS) and not name.startswith("_") and name not in _FORBIDDEN:
        method = getattr(owner, name)
        if callable(method):
            return method
    raise Unsupported(f"the attribute {name!r}")


def _modules() -> dict[str, SimpleNamespace]:
    numbers = random.Random(0)
    drawn = ("randint", "choice", "random", "uniform", "shuffle", "sample", "randrange")
    return {
        "math": SimpleNamespace(**{name: getattr(math, name) for name in dir(math) if name[0] != "_"}),
        "random": SimpleNamespace(Random=random.Random, **{name: getattr(numbers, name) for name in drawn}),
        "copy": SimpleNamespace(copy=copy.copy, deepcopy=copy.deepcopy),
        "string": SimpleNamespace(
            **{
                name: value
                for name, value in vars(string).items()
                if isinstance(value, str) and name[0] != "_"
            }
        ),
        "sys": SimpleNamespace(getsizeof=sys.getsizeof),
    }


def _product(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, bytes, list, tuple)) and isinstance(count, int):
            if len(sequence) * count > MAX_SIZE:
                raise ValueError(f"a sequence of {len(sequence) * count} items")
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > MAX_SIZE:
        raise ValueError(f"a number of {left.bit_length() * right} bits")
    return left**right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise Unsupported("formatting with %")
    return left % right


def _line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:100]
