"""Reads the fields of a record of a data file, or says which one is wrong."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Mapping
from typing import Any

from rlanything_jax.envs.code.problem import RecordError


def field(record: Mapping[str, Any], name: str) -> Any:
    if record.get(name) is None:
        raise RecordError(name, "is missing")
    return record[name]


def text(record: Mapping[str, Any], name: str) -> str:
    value = field(record, name)
    if not isinstance(value, str):
        raise RecordError(name, f"must be text, got {type(value).__name__}")
    return value


def texts(record: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts; the field of the error says which one is not."""
    value = field(record, name)
    if not isinstance(value, list):
        raise RecordError(name, f"must be a list, got {type(value).__name__}")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise RecordError(f"{name}[{index}]", f"must be text, got {item!r}")
    return value


def decoded(encoded: str, name: str) -> Any:
    """JSON inside a field."""
    try:
        return json.loads(encoded)
    except ValueError as error:
        raise RecordError(name, f"is not JSON: {error}") from error


def code(source: str, name: str) -> ast.Module:
    """Python inside a field."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings, which many programs get wrong
            return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise RecordError(name, f"is not Python: {error}") from error
