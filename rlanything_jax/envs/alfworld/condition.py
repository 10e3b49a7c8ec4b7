"""Evaluates PDDL conditions: grounds one for a game once, then tests it against the facts of a state.

Grounding writes a condition out over the game's things, and decides what no action changes. What is left is
True, False, a fluent atom, ('not', f), ('and', f, ...) or ('or', f, ...).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any

from rlanything_jax.envs.alfworld import pddl
from rlanything_jax.envs.alfworld.domain import arities

# (predicate, argument, ...), all in lower case.
Atom = tuple[str, ...]
Formula = Any
_Bindings = Mapping[str, str]


def ground(
    condition: pddl.Expression,
    names: Mapping[str, Collection[str]],
    static: Mapping[str, Set[Atom]],
    bindings: _Bindings | None = None,
) -> Formula:
    """Grounds a condition of and, or, not, imply, exists, forall, = and predicates.

    Args:
      condition: as `pddl.read` gives it.
      names: PDDL type -> the things of this type that a quantifier ranges over.
      static: predicate -> the atoms that hold for ever. Every other predicate of the domain is a fluent.
      bindings: variable -> thing, for the free variables.

    Raises ValueError for anything else.
    """
    bindings = bindings or {}

    def again(part: pddl.Expression, bound: _Bindings = bindings) -> Formula:
        return ground(part, names, static, bound)

    match condition:
        case ():
            return True
        case (str(head), *parts):
            head = head.lower()
        case _:
            raise ValueError(f"condition {pddl.write(condition)[:80]!r} does not start with a word")
    match head, parts:
        case "and" | "or", _:
            return _join(head, map(again, parts))
        case "not", [part]:
            return _negate(again(part))
        case "imply", [premise, conclusion]:
            return _join("or", (again(part) for part in (("not", premise), conclusion)))
        case "exists" | "forall", [tuple(variables), body]:
            typed = [(name.lower(), kind.lower()) for name, kind in pddl.declarations(variables)]
            required = list(_required(body, head))
            instances = _instances(typed, required, names, static, bindings)
            return _join("or" if head == "exists" else "and", (again(body, bound) for bound in instances))
        case (("and" | "or" | "not" | "imply" | "exists" | "forall"), _):
            raise ValueError(f"condition {pddl.write(condition)[:80]!r} has the wrong number of parts")
    atom = (head, *(_value(part, bindings) for part in parts))
    if head == "=":
        return len(set(atom[1:])) == 1
    if arities().get(head) != len(parts):
        raise ValueError(
            f"{pddl.write(condition)[:80]!r}: ALFWorld's domain has no {head} of {len(parts)} arguments"
        )
    return atom in static[head] if head in static else atom


def holds(formula: Formula, facts: Set[Atom]) -> bool:
    """Whether a ground formula is true when exactly `facts` hold among the fluent atoms."""
    if isinstance(formula, bool):
        return formula
    head, *parts = formula
    if head == "and":
        return all(holds(part, facts) for part in parts)
    if head == "or":
        return any(holds(part, facts) for part in parts)
    if head == "not":
        return not holds(parts[0], facts)
    return formula in facts


def predicates(formula: Formula) -> set[str]:
    """The predicates of a ground formula."""
    if isinstance(formula, bool):
        return set()
    if formula[0] in _CONNECTIVES:
        return set().union(*map(predicates, formula[1:]))
    return {formula[0]}


_CONNECTIVES = ("and", "or", "not")


def _value(term: pddl.Expression, bindings: _Bindings) -> str:
    if not isinstance(term, str):
        raise ValueError(f"{pddl.write(term)[:80]!r} stands where a name or a variable should")
    term = term.lower()
    if term.startswith("?"):
        if term not in bindings:
            raise ValueError(f"variable {term!r} is not bound by a quantifier")
        return bindings[term]
    return term


def _negate(formula: Formula) -> Formula:
    if isinstance(formula, bool):
        return not formula
    return formula[1] if formula[0] == "not" else ("not", formula)


def _join(head: str, formulas: Iterator[Formula] | Sequence[Formula]) -> Formula:
    """The conjunction or disjunction of formulas, simplified."""
    decisive = head == "or"
    kept: dict[Formula, None] = {}
    for formula in formulas:
        if formula is decisive:
            return decisive
        if formula is not (not decisive):
            parts = formula[1:] if formula[0] == head else (formula,)
            kept.update(dict.fromkeys(parts))
    if not kept:
        return not decisive
    return next(iter(kept)) if len(kept) == 1 else (head, *kept)


def _required(body: pddl.Expression, quantifier: str) -> Iterator[tuple[str, ...]]:
    """Atoms without which an instance of the body decides nothing: false under exists, true under forall."""
    match body:
        case (str(head), *parts):
            match head.lower(), parts:
                case "and", _ if quantifier == "exists":
                    for part in parts:
                        yield from _required(part, quantifier)
                case "exists", [tuple(variables), inner] if quantifier == "exists":
                    own = {name.lower() for name, _ in pddl.declarations(variables)}
                    yield from (atom for atom in _required(inner, quantifier) if own.isdisjoint(atom))
                case "imply", [premise, _] if quantifier == "forall":
                    yield from _required(premise, "exists")
                case (("and" | "or" | "not" | "imply" | "exists" | "forall" | "="), _):
                    pass
                case _ if quantifier == "exists" and all(isinstance(part, str) for part in parts):
                    yield (head.lower(), *(str(part).lower() for part in parts))


def _instances(
    typed: Sequence[tuple[str, str]],
    required: Sequence[tuple[str, ...]],
    names: Mapping[str, Collection[str]],
    static: Mapping[str, Set[Atom]],
    bindings: _Bindings,
) -> Iterator[_Bindings]:
    """The bindings of the variables that the required static atoms allow."""
    if not typed:
        yield bindings
        return
    (variable, kind), *rest = typed
    if kind not in names:
        raise ValueError(f"{variable} is of type {kind!r}: use one of {', '.join(names)}")
    candidates = set(names[kind])
    for predicate, *terms in required:
        others = [term for term in terms if term[0] == "?" and term != variable]
        if predicate in static and variable in terms and all(other in bindings for other in others):
            wanted = [None if term == variable else bindings.get(term, term) for term in terms]
            at = wanted.index(None)
            candidates &= {
                atom[at + 1]
                for atom in static[predicate]
                if all(want is None or want == have for want, have in zip(wanted, atom[1:], strict=False))
            }
    for name in candidates:
        yield from _instances(rest, required, names, static, {**bindings, variable: name})
