"""The measured process of `transformers` or google-tunix: each loads the exported weights and plays the same workloads.

`python -m benchmarks.peers --job JSON` prints what it measured; benchmarks.sampler and benchmarks.judge start it. It
imports nothing of this project's package, since tunix lives in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import peak_mb, timed
from benchmarks.workloads import Generate, Shape, evaluations, in_batches, multi_turn, shape_of, texts


def transformers(folder: str) -> tuple[Generate, Generate]:
    """Sampling and greedy generation, batched, prompts padded on the left."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def generator(**how: Any) -> Generate:
        def generate(prompts: list[list[int]], tokens: int) -> list[list[int]]:
            width = max(map(len, prompts))
            ids = torch.zeros(len(prompts), width, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, prompt in enumerate(prompts):
                ids[row, width - len(prompt) :] = torch.tensor(prompt)
                mask[row, width - len(prompt) :] = 1
            with torch.no_grad():
                out = model.generate(
                    ids, attention_mask=mask, max_new_tokens=tokens, min_new_tokens=tokens, **how
                )
            return out[:, width:].tolist()

        return generate

    return generator(do_sample=True, temperature=1.0, top_k=0), generator(do_sample=False)


def tunix(folder: str, cache: int) -> tuple[Generate, Generate]:
    """Sampling and greedy generation with its vanilla sampler; a cache of `cache` tokens."""
    from jax import numpy as jnp
    from tunix.generate.sampler import CacheConfig, Sampler
    from tunix.models.llama3 import model as llama3
    from tunix.models.llama3.params import create_model_from_safe_tensors

    values = json.loads(Path(folder, "config.json").read_text())
    config = llama3.ModelConfig(
        num_layers=values["num_hidden_layers"],
        vocab_size=values["vocab_size"],
        embed_dim=values["hidden_size"],
        hidden_dim=values["intermediate_size"],
        num_heads=values["num_attention_heads"],
        head_dim=values["head_dim"],
        num_kv_heads=values["num_key_value_heads"],
        rope_theta=values["rope_theta"],
        norm_eps=values["rms_norm_eps"],
        weight_tying=True,
    )
    llama3.apply_rope.__defaults__ = (
        values["rope_theta"],
    )  # version 0.1.7 never hands on what the config says

    class Ids:
        """A tokenizer whose texts are ids; the sampler itself puts the opening id in front."""

        def encode(self, text: str, **_: Any) -> list[int]:
            return [int(i) for i in text.split()]

        def decode(self, ids: Any, **_: Any) -> str:
            return " ".join(str(int(i)) for i in ids)

        def bos_id(self) -> int:
            return 1

        def eos_id(self) -> int:
            return 2

        def pad_id(self) -> int:
            return 0

    sampler = Sampler(
        transformer=create_model_from_safe_tensors(folder, config, dtype=jnp.float32),
        tokenizer=Ids(),
        cache_config=CacheConfig(
            cache_size=cache,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
        ),
    )

    def generator(**how: Any) -> Generate:
        def generate(prompts: list[list[int]], tokens: int) -> list[list[int]]:
            longest = max(map(len, prompts))
            out = sampler(
                input_strings=[" ".join(map(str, prompt[1:])) for prompt in prompts],
                max_generation_steps=tokens,
                # Its own rounding, but never past a power of two that the prompt fits exactly.
                max_prompt_length=1 << (longest - 1).bit_length(),
                eos_tokens=[10**6],
                seed=0,
                **how,
            )
            return [np.asarray(new).tolist() for new in out.tokens]

        return generate

    return generator(temperature=1.0, top_p=1.0), generator(temperature=0.0)


def train_step(folder: str, shape: Shape) -> tuple[Callable[[], Any], int]:
    """Forward, backward and AdamW of `transformers` on packed rows: (a step, the tokens of it)."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.tensor(texts(shape, shape.train_rows, shape.train_length, 7))

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, ids.numel()


def measure(job: dict[str, Any]) -> dict[str, Any]:
    shape = shape_of(job)
    workload, system, note = job["workload"], job["system"], ""
    if workload == "train-step":
        run, count = train_step(job["folder"], shape)
        run()
    else:
        longest = {
            "multi-turn": shape.turns * shape.turn,
            "one-turn": shape.prompt,
            "judging": shape.trunk + shape.question,
            "greedy": 16,
        }[workload]
        new = max(shape.action, shape.response, shape.rationale)
        cache = (1 << (longest - 1).bit_length()) + new
        sample, greedy = (
            transformers(job["folder"]) if system == "transformers" else tunix(job["folder"], cache)
        )
        if workload == "greedy":
            return {"tokens": greedy(texts(shape, 4, 12, 5), 8)}
        if workload == "multi-turn":
            alone = system == "tunix"  # its agents are prompted one at a time
            episodes, at_once = (shape.sample, 1) if alone else (shape.episodes, shape.batch)
            note = f"history re-sent, {f'{episodes} episodes, one at a time' if alone else 'batched'}"
            warm = 1 if alone else min(2, episodes)
            multi_turn(sample, shape, warm, warm)
            count = episodes * shape.turns * shape.turn

            def run() -> Any:
                return multi_turn(sample, shape, episodes, at_once)
        elif workload == "one-turn":
            prompts = texts(shape, shape.batch, shape.prompt, 3)
            count = shape.batch * shape.response
            sample(prompts, shape.response)

            def run() -> Any:
                return sample(prompts, shape.response)
        else:
            prompts = evaluations(shape, shape.judged)
            count, note = len(prompts), f"one call a vote, {len(prompts)} votes"
            at_once = shape.batch
            in_batches(sample, prompts if system == "tunix" else prompts[:2], shape.rationale, at_once)

            def run() -> Any:
                return in_batches(sample, prompts, shape.rationale, at_once)

    seconds = timed(run, job["repeats"])
    return {"seconds": seconds, "count": count, "peak_mb": peak_mb(), "note": note}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--job", type=json.loads, required=True)
    print(json.dumps(measure(parser.parse_args().job)))


if __name__ == "__main__":
    main()
