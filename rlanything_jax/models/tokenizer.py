"""Word tokenizers for small models, on the `tokenizers` library.

A piece of text is one id when the vocabulary has it whole (a phrase of the world's grammar, a word, an
object's name with its number), and falls back to bytes when it does not, so that no text is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

PAD = "<pad>"
END = "<end>"  # ends a turn
JUDGE = "<judge>"  # opens an evaluation
SPECIALS = (PAD, END, JUDGE)


def build_tokenizer(
    corpus: Iterable[str], phrases: Sequence[str], *, names: str = r"[a-z]+ \d+"
) -> Tokenizer:
    """A tokenizer whose vocabulary is every piece of `corpus`.

    Args:
      corpus: texts that show all words the model should know.
      phrases: strings that are one piece wherever they occur, longest match first.
      names: a regular expression of names that are one piece.

    The pieces are, in this order of preference: phrases, names, words with the blank before them, and single
    characters. Raises ValueError on a phrase that is the name of a special token: it would be that token.
    """
    if clash := sorted(set(SPECIALS) & set(phrases)):
        raise ValueError(f"the phrase(s) {clash} are names of special tokens; leave them out")
    by_length = sorted(phrases, key=lambda p: (-len(p), p))
    pattern = "|".join([*map(re.escape, by_length), names, r" ?[A-Za-z]+", r" ?\d+", r"\s", "."])
    pieces = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    counts: Counter[str] = Counter()
    for text in corpus:
        counts.update(piece for piece, _ in pieces.pre_tokenize_str(text))
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*SPECIALS, *alphabet, *words]))}
    # Without merges the model knows whole pieces and bytes, nothing between.
    tokenizer = Tokenizer(BPE(vocabulary, [], ignore_merges=True))
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    return protected(tokenizer)


def special_id(tokenizer: Tokenizer, name: str) -> int:
    """The id of a special token. Raises ValueError where the tokenizer has no such token."""
    token = tokenizer.token_to_id(name)
    if token is None:
        raise ValueError(f"the tokenizer has no token {name!r}; build it with build_tokenizer")
    return token


def protected(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, set to read the name of a special token in a text as characters: none can be injected.

    The setting is not stored with a tokenizer, so a loaded one passes through here too.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer
