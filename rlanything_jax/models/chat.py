"""Conversations as token ids: what a chat model reads before it acts, and what is appended when the world answers.

Three rules hold here, because training sees exactly these ids:

- What was sampled is never tokenized again. `extend` returns only what follows a response. Where the template would have written
  an earlier turn differently (Qwen3 drops old thoughts, Llama 3 strips blanks), there is nothing to append: it says so, once in
  the log and always in its result, and returns a new context, which is a new segment for the trainer.
- Text cannot write markup. The name of an added token in a message, an observation or a tool's arguments is read as characters,
  so that a web page that says `<|im_end|>` ends no turn. The one exception: in the text of an assistant, names of added tokens
  that are not special (`<think>`, `<tool_call>`) stay tokens, since the model wrote them as such and templates look for them.
- The beginning-of-sequence token is the template's business alone; the tokenizer's own is never added.

Nothing here changes after it was built, so threads may share a `Chat`.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer

from rlanything_jax.models.chat_template import ChatTemplate, Message
from rlanything_jax.models.tokenizer_files import (
    CONFIG,
    Specials,
    load_specials,
    read_json,
    save_tokenizer,
    specials_from_gguf,
)

TEMPLATE = "chat_template.jinja"
NAMED_TEMPLATES = "additional_chat_templates"  # a folder of NAME.jinja

_PROBE = "a text that no template holds"

Tools = Sequence[Mapping[str, Any]] | None


class Extension(NamedTuple):
    """What follows a response."""

    ids: list[int]  # to append; the whole new context where `restart`
    restart: bool  # the template rewrote earlier turns: `ids` begins a new segment


class Chat:
    """A tokenizer with the conversation format of its model.

    Attributes:
      tokenizer: of the checkpoint.
      templates: {name: template}; 'default', and 'tool_use' where there are tools and the checkpoint has one for them.
      specials: the tokens that have a role.
      options: variables for the template besides the conversation, such as `enable_thinking`, or the
        `date_string` without which Llama 3 reads today's date.
      stop: ids that end the model's turn: the template's end of turn, then those of `specials`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        templates: Mapping[str, ChatTemplate],
        specials: Specials,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises ValueError where nothing would end a turn, or on an option that no template reads."""
        if "default" not in templates:
            raise ValueError(f"the chat templates are {sorted(templates)}; one must be named 'default'")
        self.tokenizer = tokenizer
        self.templates = dict(templates)
        self.specials = specials
        self.options = self._read_by_templates(options or {})
        added = tokenizer.get_added_tokens_decoder()
        self._ids = {token.content: i for i, token in added.items()}
        self._markup = _pattern(map(_in_text, added.values()))
        self._names = _pattern(re.escape(token.content) for token in added.values())
        self._special_names = _pattern(re.escape(token.content) for token in added.values() if token.special)
        self._plain = _without_added_tokens(tokenizer)
        self.stop = tuple(dict.fromkeys([*self._end_of_turn(), *specials.eos]))
        if not self.stop:
            raise ValueError(
                f"{templates['default'].origin}: the template ends no turn with an added token, and the checkpoint names no "
                "eos token: the model would never stop"
            )

    def with_options(self, **options: Any) -> Chat:
        """The same chat with other variables for its template: `chat.with_options(enable_thinking=False)`.

        Raises ValueError on a variable that no template reads.
        """
        chat = copy.copy(self)
        chat.options = self._read_by_templates(self.options | options)
        return chat

    def render(
        self, messages: Sequence[Message], *, tools: Tools = None, add_generation_prompt: bool = True
    ) -> str:
        """The text of a conversation, equal to that of transformers' `apply_chat_template`. For people to read: see `open`."""
        template = self.templates["default"]
        if tools is not None:
            template = self.templates.get("tool_use", template)
        variables = {**self.specials.names, **self.options}
        return template.render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, **variables
        )

    def open(self, messages: Sequence[Message], *, tools: Tools = None) -> list[int]:
        """Token ids of a conversation and of the header of the model's next turn.

        Where no text contains the name of an added token they are those of transformers' `apply_chat_template`. Raises ValueError
        where the template refuses the conversation, TypeError on a message that is not made of JSON's types.
        """
        marker = _unused_character([messages, tools])
        return self._encode(self._render(messages, tools, marker), marker)

    def reply(self, response_ids: Sequence[int]) -> dict[str, str]:
        """The sampled response as the assistant's message: what the caller appends to `messages`, before the world's answer."""
        return {"role": "assistant", "content": self.text(response_ids)}

    def extend(
        self,
        messages: Sequence[Message],
        response_ids: Sequence[int],
        new_messages: Sequence[Message],
        *,
        tools: Tools = None,
    ) -> Extension:
        """What the model reads after its response, before it acts again.

        Args:
          messages: the conversation that the model answered; its context holds `open(messages)` or an extension up to there.
          response_ids: what it sampled, with the id that stopped it or, where its budget ended first, without.
          new_messages: what the world said.

        Where the template's rendering of everything begins with that of `messages` and the response's text, the result is the
        rest: the end of the turn if it was not sampled, the new messages and the header of the next turn. Else, and where the
        model stopped with another id than the template ends turns with, the result is a restart: the rendering of everything, to
        be read as a new segment. A warning is then logged, once for each template.
        """
        reply = self.reply(response_ids)
        conversation = [*messages, reply, *new_messages]
        marker = _unused_character([conversation, tools])
        text = self._render(conversation, tools, marker)
        before = self._render(messages, tools, marker) + _broken(
            reply["content"], self._special_names, marker
        )
        if text.startswith(before):
            rest = self._encode(text[len(before) :], marker)
            if not self._stopped(response_ids):
                return Extension(rest, restart=False)
            if rest[:1] == [response_ids[-1]]:
                return Extension(rest[1:], restart=False)
        _warn_of_restart(self.templates["default"].origin)
        return Extension(self._encode(text, marker), restart=True)

    def transcript(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """A conversation to be read rather than continued, and the number of ids up to the end of each user's text but the first.

        Everything is as the template writes it of the past: thoughts that it drops from earlier turns are not there. Raises
        ValueError where a later turn changes how the template writes an earlier one of the user.
        """
        marker = _unused_character(list(messages))
        whole = self._render(messages, None, marker, add_generation_prompt=False)
        close = self._user_close
        ids: list[int] = []
        ends: list[int] = []
        position = 0
        for i, message in enumerate(messages):
            if message["role"] != "user":
                continue
            before = self._render(messages[: i + 1], None, marker, add_generation_prompt=False)
            if not whole.startswith(before):
                origin = self.templates["default"].origin
                raise ValueError(f"{origin}: message {i} is written differently once others follow it")
            end = len(before) - len(close)
            ids += self._encode(whole[position:end], marker)
            ends.append(len(ids))
            position = end
        return ids, ends[1:]

    def continuation(self, text: str) -> list[int]:
        """What goes on from the end of a user's text: `text`, the end of the turn, and the header of the model's."""
        marker = _unused_character([text])
        opened = self._render([{"role": "user", "content": _PROBE}], None, marker)
        rest = opened.rpartition(_PROBE)[2]
        return self._encode(_broken(text, self._names, marker) + rest, marker)

    @functools.cached_property
    def _user_close(self) -> str:
        """What the template writes behind a user's text, before anybody else's turn."""
        message = {"role": "user", "content": _PROBE}
        return self.render([message], add_generation_prompt=False).rpartition(_PROBE)[2]

    def text(self, ids: Sequence[int]) -> str:
        """What a response says, without the id that stopped it; other special tokens are shown by their names."""
        end = len(ids) - 1 if self._stopped(ids) else len(ids)
        return self.tokenizer.decode([int(i) for i in ids[:end]], skip_special_tokens=False)

    def _stopped(self, ids: Sequence[int]) -> bool:
        return bool(len(ids)) and ids[-1] in self.stop

    def _read_by_templates(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if not any(template.uses(name) for template in self.templates.values()):
                origin = self.templates["default"].origin
                raise ValueError(f"{origin}: the template reads no variable {name!r}; leave the option out")
        return dict(options)

    def _render(
        self, messages: Sequence[Message], tools: Tools, marker: str, *, add_generation_prompt: bool = True
    ) -> str:
        """As `render`, with `marker` within every name of an added token that comes from a text."""
        shielded = [_shielded(message, self._names, self._special_names, marker) for message in messages]
        tools = None if tools is None else _map(tools, self._names, marker)
        return self.render(shielded, tools=tools, add_generation_prompt=add_generation_prompt)

    def _encode(self, text: str, marker: str) -> list[int]:
        """Ids of a rendering. A whole name is the template's own; one with `marker` in it is text."""
        ids: list[int] = []
        position = 0
        for match in self._markup.finditer(text):
            ids += self._encode_plain(text[position : match.start()], marker)
            name = match.group()
            ids.append(self._ids[name if name in self._ids else name.strip()])
            position = match.end()
        return ids + self._encode_plain(text[position:], marker)

    def _encode_plain(self, text: str, marker: str) -> list[int]:
        return self._plain.encode(text.replace(marker, ""), add_special_tokens=False).ids

    def _end_of_turn(self) -> list[int]:
        """The first added token behind an assistant's text, found by looking; [] where the template has none."""
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PROBE}]
        _, _, rest = self.render(messages, add_generation_prompt=False).rpartition(_PROBE)
        match = self._names.search(rest)
        return [self._ids[match.group()]] if match else []


def load_chat(folder: str | Path, tokenizer: Tokenizer, *, options: Mapping[str, Any] | None = None) -> Chat:
    """The chat of a checkpoint folder: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`.

    Raises ValueError, naming the file, where there is no template, or one has a syntax error.
    """
    folder = Path(folder)
    files = {"default": folder / TEMPLATE} if (folder / TEMPLATE).is_file() else {}
    files |= {path.stem: path for path in sorted((folder / NAMED_TEMPLATES).glob("*.jinja"))}
    templates = {
        name: ChatTemplate(path.read_text(encoding="utf-8"), str(path)) for name, path in files.items()
    }
    if not templates:
        path = folder / CONFIG
        found = read_json(path).get("chat_template")
        if not found:
            raise ValueError(
                f"{folder} has no chat template, neither {TEMPLATE} nor 'chat_template' in {CONFIG}: a base model? Take the "
                "instruction-tuned checkpoint, or put a template there"
            )
        named = {"default": found} if isinstance(found, str) else {t["name"]: t["template"] for t in found}
        templates = {
            name: ChatTemplate(source, f"{path}, chat_template '{name}'") for name, source in named.items()
        }
    return Chat(tokenizer, templates, load_specials(folder, tokenizer), options)


def chat_from_gguf(
    metadata: Mapping[str, Any], tokenizer: Tokenizer, *, options: Mapping[str, Any] | None = None
) -> Chat:
    """The chat in the metadata of a GGUF file. Raises ValueError where it has no template, or one with a syntax error."""
    field = "tokenizer.chat_template"
    if field not in metadata:
        raise ValueError(f"the GGUF file has no {field}: a base model? Take the instruction-tuned one")
    templates = {"default": ChatTemplate(metadata[field], field)}
    for key, source in metadata.items():
        if key.startswith(f"{field}."):
            templates[key.removeprefix(f"{field}.")] = ChatTemplate(source, key)
    return Chat(tokenizer, templates, specials_from_gguf(metadata), options)


def save_chat(chat: Chat, folder: str | Path) -> None:
    """Writes tokenizer, templates and ids that end a turn: what `load_chat` and transformers' `AutoTokenizer` read."""
    folder = Path(folder)
    save_tokenizer(chat.tokenizer, folder, chat.specials._replace(eos=chat.stop))
    (folder / TEMPLATE).write_text(chat.templates["default"].source, encoding="utf-8")
    for name, template in chat.templates.items():
        if name != "default":
            (folder / NAMED_TEMPLATES).mkdir(exist_ok=True)
            (folder / NAMED_TEMPLATES / f"{name}.jinja").write_text(template.source, encoding="utf-8")


@functools.cache
def _warn_of_restart(origin: str) -> None:
    logging.getLogger(__name__).warning(
        "%s: the template writes earlier turns differently when later ones follow, or the model ended its turn in its own way. "
        "Such a turn cannot be appended to what was sampled: it begins a new segment, which is read from its start.",
        origin,
    )


def _pattern(expressions: Iterable[str]) -> re.Pattern[str]:
    """Matches the longest of `expressions` at the first place where any matches; nothing where there are none."""
    return re.compile("|".join(sorted(expressions, key=len, reverse=True)) or r"(?!)")


def _in_text(token: AddedToken) -> str:
    """Where the library finds an added token: it may take the blanks around it, or refuse to be part of a word."""
    name = re.escape(token.content)
    if token.single_word:
        name = rf"(?<!\w){name}(?!\w)"
    blanks = r"\s*"
    return (blanks if token.lstrip else "") + name + (blanks if token.rstrip else "")


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that cannot produce the id of an added token: neither as such nor as a piece of its vocabulary."""
    state = json.loads(tokenizer.to_str())
    names = {token["content"] for token in state["added_tokens"]}
    model = state["model"]
    if model["type"] != "BPE":
        raise ValueError(
            f"the tokenizer's model is {model['type']}; chats need BPE, as all supported families have"
        )
    state["added_tokens"] = []
    model["vocab"] = {piece: i for piece, i in model["vocab"].items() if piece not in names}
    model["merges"] = [pair for pair in model["merges"] if not names & {*pair, "".join(pair)}]
    return Tokenizer.from_str(json.dumps(state))


def _broken(text: str, names: re.Pattern[str], marker: str) -> str:
    """`text` with `marker` behind every character of each name, so that no name is left, nor one that overlaps it."""
    return names.sub(lambda match: "".join(character + marker for character in match.group()), text)


def _map(value: Any, names: re.Pattern[str], marker: str) -> Any:
    """`_broken` for every text in `value`, keys included."""
    match value:
        case str():
            return _broken(value, names, marker)
        case Mapping():
            return {_map(key, names, marker): _map(item, names, marker) for key, item in value.items()}
        case list() | tuple():
            return [_map(item, names, marker) for item in value]
        case None | bool() | int() | float():
            return value
    raise TypeError(f"a message holds a {type(value).__name__}; messages are made of JSON's types")


def _shielded(
    message: Message, names: re.Pattern[str], special_names: re.Pattern[str], marker: str
) -> dict[str, Any]:
    """A message that cannot write markup. What an assistant said may hold the names that are not special."""
    own = {"content", "reasoning_content"} if message.get("role") == "assistant" else set()
    return {key: _map(item, special_names if key in own else names, marker) for key, item in message.items()}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            yield from _texts([*value, *value.values()])
        case list() | tuple():
            for item in value:
                yield from _texts(item)


def _unused_character(value: Any) -> str:
    """A character for private use that no text in `value` holds. Raises ValueError where all of them occur."""
    used = set().union(*_texts(value))
    for character in map(chr, range(0xE000, 0xF900)):
        if character not in used:
            return character
    raise ValueError("the messages hold every character of the private use area: none is left to mark text")
