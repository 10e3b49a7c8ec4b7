"""Chat templates: from messages to the text that a model was trained to read.

A checkpoint ships its conversation format as a Jinja program. It is rendered here in Jinja's immutable sandbox, with the
environment that `transformers` gives it (whitespace rules, `tojson`, `strftime_now`, `raise_exception`, loop controls,
`{% generation %}`), so that the text is equal to that of `apply_chat_template`, without `transformers` at run time.

A template cannot reach Python, the file system or the network, and it cannot run for ever: loops, macros and ranges draw on one
budget of `MAX_STEPS` for each rendering. The memory of a single expression is not bounded, so this protects from a broken
template, not from a checkpoint whose author wants to fill the memory.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = (
    100_000  # of loops, macros and ranges in one rendering; a conversation takes a few for each message
)

Message = Mapping[str, Any]  # {"role": ..., "content": ..., ...}


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A chat template and where it comes from, for messages of errors."""

    source: str
    origin: str

    def __post_init__(self) -> None:
        _compile(self.source, self.origin)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        Args:
          tools: JSON schemas of the functions that the model may call. None and () differ to some templates.
          documents: texts to answer from, for templates that have a place for them.
          add_generation_prompt: end with the header of the model's next turn.
          variables: whatever else the template reads: `bos_token`, `enable_thinking`, ...

        Raises ValueError, naming the template, where it refuses the conversation, fails on it, or exceeds `MAX_STEPS`.
        """
        template = _compile(self.source, self.origin)
        _budget.left = MAX_STEPS
        try:
            return template.render(
                messages=messages,
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
        except Exception as error:  # it is a program: it may fail in any way
            raise ValueError(
                f"{self.origin}: the template cannot render this conversation: {error}"
            ) from error

    def uses(self, variable: str) -> bool:
        """Whether the template reads `variable` from outside."""
        return variable in meta.find_undeclared_variables(_environment().parse(self.source))


_budget = threading.local()  # a template is shared by threads, a rendering is not


def _spend(steps: int) -> None:
    _budget.left -= steps
    if _budget.left < 0:
        raise jinja2.TemplateRuntimeError(f"it runs more than {MAX_STEPS} steps, so it may never end")


class _Steps(Extension):
    """Counts: lets every pass through the body of a loop or a macro draw on the budget."""

    def step(self) -> bool:
        _spend(1)
        return True

    def count(self, template: nodes.Template) -> nodes.Template:
        loops, macros = list(template.find_all(nodes.For)), list(template.find_all(nodes.Macro))
        for body in [loop.body for loop in loops] + [macro.body for macro in macros]:
            body.insert(0, nodes.ExprStmt(self.call_method("step")))
        for loop in loops:
            if loop.test:
                loop.test = nodes.And(self.call_method("step"), loop.test, lineno=loop.lineno)
        template.set_environment(self.environment)
        return template


class _Generation(Extension):
    """`{% generation %}`: marks what the model wrote, for trainers that mask by it; the text is that of its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which no model has been trained on.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _range(*limits: int) -> range:
    numbers = range(*limits)
    _spend(len(numbers))
    return numbers


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Steps, _Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["range"] = _range
    return environment


@functools.lru_cache(maxsize=32)
def _compile(source: str, origin: str) -> jinja2.Template:
    environment = _environment()
    steps = environment.extensions[_Steps.identifier]
    assert isinstance(steps, _Steps)
    try:
        return environment.from_string(steps.count(environment.parse(source)))
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"{origin}, line {error.lineno} of the template: {error.message}") from error
