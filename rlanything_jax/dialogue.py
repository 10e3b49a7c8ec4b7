"""How an agent's exchanges with its world become tokens, for a model of either kind: word-level, or with a chat template.

An exchange is what the model read and what it wrote. `open` and `extend` say what a context reads before each response; a
`transcript` is the whole of an episode as a judge reads it, with the points where a question about a step may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tokenizers import Tokenizer

from rlanything_jax.models.chat import Chat, Extension
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.models.tokenizer import END, JUDGE, special_id
from rlanything_jax.reward.verdicts import Verdict, parse_boxed, parse_words


class Exchange(NamedTuple):
    read: str
    wrote: str


class Transcript(NamedTuple):
    """An episode [S] as one text; `points` [T] count the tokens up to the end of what followed each step."""

    tokens: list[int]
    points: list[int]


class Dialogue(Protocol):
    stop: tuple[int, ...]  # ids that end a response
    question: list[int]  # ids that follow a point of a transcript and open a vote
    closing: int  # tokens of an observation behind its text: what ends it and opens the response

    def open(self, text: str) -> list[int]:
        """The ids of a new context in which `text` is read and a response is due."""
        ...

    def extend(self, exchanges: Sequence[Exchange], written: Sequence[int], text: str) -> Extension:
        """The ids that follow `written`, the sampled ids of the last exchange, so that `text` is read and a response is due.

        Where a context cannot be continued, the ids of a new one and `restart`.
        """
        ...

    def text(self, written: Sequence[int]) -> str:
        """A sampled response as text, without its stop token."""
        ...

    def verdict(self, text: str) -> Verdict:
        """What a vote in this model's manner means."""
        ...

    def transcript(self, exchanges: Sequence[Exchange], last: str) -> Transcript:
        """The episode of `exchanges` whose last response was followed by `last`."""
        ...


class Speaker(NamedTuple):
    """A model that is ready to generate."""

    params: Params  # unstacked
    model: ModelConfig
    dialogue: Dialogue


class WordDialogue:
    """Plain texts, one after the other, for a word-level tokenizer with the special tokens of `models.tokenizer`."""

    closing = 0

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.stop: tuple[int, ...] = (special_id(tokenizer, END),)
        self.question = [special_id(tokenizer, JUDGE)]

    def open(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def extend(self, exchanges: Sequence[Exchange], written: Sequence[int], text: str) -> Extension:
        return Extension(self.open(text), restart=False)

    def text(self, written: Sequence[int]) -> str:
        return self.tokenizer.decode(_without_stop(written, self.stop))

    def verdict(self, text: str) -> Verdict:
        return parse_words(text)

    def transcript(self, exchanges: Sequence[Exchange], last: str) -> Transcript:
        reads = [*(exchange.read for exchange in exchanges), last]
        tokens, points = self.open(reads[0]), []
        for exchange, followed in zip(exchanges, reads[1:], strict=True):
            tokens += [*self.open(exchange.wrote), *self.stop, *self.open(followed)]
            points.append(len(tokens))
        return Transcript(tokens, points)


class ChatDialogue:
    """Messages of a chat template: the world's texts are the user's, the responses are the assistant's.

    Args:
      system: the system message, "" for none.
      question: what a judge is asked about the last response of a transcript; it goes on from what followed it.
    """

    def __init__(self, chat: Chat, *, system: str = "", question: str = "") -> None:
        self.chat = chat
        self.stop = chat.stop
        self._system = [{"role": "system", "content": system}] if system else []
        self.closing = len(chat.continuation(""))
        self.question = chat.continuation(f"\n\n{question}")

    def open(self, text: str) -> list[int]:
        return self.chat.open([*self._system, _user(text)])

    def extend(self, exchanges: Sequence[Exchange], written: Sequence[int], text: str) -> Extension:
        *past, last = exchanges
        return self.chat.extend([*self._messages(past), _user(last.read)], list(written), [_user(text)])

    def text(self, written: Sequence[int]) -> str:
        return self.chat.text(list(written))

    def verdict(self, text: str) -> Verdict:
        return parse_boxed(text)

    def transcript(self, exchanges: Sequence[Exchange], last: str) -> Transcript:
        return Transcript(*self.chat.transcript([*self._messages(exchanges), _user(last)]))

    def _messages(self, exchanges: Sequence[Exchange]) -> list[dict[str, str]]:
        turns = [(_user(e.read), {"role": "assistant", "content": e.wrote}) for e in exchanges]
        return [*self._system, *(message for turn in turns for message in turn)]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _without_stop(written: Sequence[int], stop: tuple[int, ...]) -> list[int]:
    return list(written[:-1] if written and written[-1] in stop else written)
