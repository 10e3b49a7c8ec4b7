"""Measures the sampler and the train step against google-tunix, `transformers` and our own naive path.

    python -m benchmarks.sampler [--workloads=...] [--sizes=tiny,135m] [--systems=...] [--repeats=5] [--json=FILE]

All systems run on the same weights, prompts and lengths, each in a process of its own, and none ends a response early:

  multi-turn   32 episodes of 16 turns, each an observation of 40 tokens and an action of 12. Ours is `rollout` with its
               cache kept over turns; naive is the same sampler without, which reads the history anew each turn, as the
               peers do: `transformers` in a batch of 32, tunix one prompt at a time, as its agents do.
  one-turn     32 prompts of 128 tokens, 64 new ones. Naive is a forward pass over the whole text for each token.
  decode       the 64 new tokens of it alone.
  train-step   forward, backward and AdamW on rows of 256 tokens.

"of bound" is the least time that the result costs on this machine, over the time it took: weights and cache over the memory
bandwidth, or operations over the rate of matrix products, whichever is more; both are measured in the same run. That least
is the same for all systems: it counts every token of a text once.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    Bound,
    Costs,
    Row,
    arguments,
    has,
    in_child,
    missing,
    peak_mb,
    row,
    show,
    timed,
    write,
)
from benchmarks.workloads import Shape, multi_turn, shape_of, texts

WORKLOADS = ("multi-turn", "one-turn", "decode", "train-step")
MEASURED = {  # which systems have which workload
    "multi-turn": ("ours", "naive", "transformers", "tunix"),
    "one-turn": ("ours", "naive", "transformers", "tunix"),
    "decode": ("ours",),
    "train-step": ("ours", "transformers"),
}
BUCKETS = (128, 256, 512, 896)
NAIVE_TOKENS = 4  # of a response, where each is a forward pass of its own


def least_seconds(workload: str, shape: Shape, costs: Any, bound: Bound) -> float:
    """For one token of the workload's result."""
    if workload == "multi-turn":
        total = 0.0
        for turn in range(shape.turns):
            at = turn * shape.turn
            total += costs.read(bound, shape.episodes * shape.observation, at + shape.observation / 2)
            total += shape.action * costs.write(
                bound, shape.episodes, at + shape.observation + shape.action / 2
            )
        return total / (shape.episodes * shape.turns * shape.turn)
    decode = shape.response * costs.write(bound, shape.batch, shape.prompt + shape.response / 2)
    if workload == "train-step":
        return costs.train(bound, 1, shape.train_length / 2)
    if workload == "one-turn":
        decode += costs.read(bound, shape.batch * shape.prompt, shape.prompt / 2)
    return decode / (shape.batch * shape.response)


def play(speaker: Any, shape: Shape) -> Callable[[], Any]:
    """Our rollouts, with environments that recite observations."""
    from rlanything_jax.envs.base import Observation
    from rlanything_jax.envs.pool import EnvironmentPool
    from rlanything_jax.rollouts import SamplerConfig, rollout
    from rlanything_jax.tasks.task import Task

    read = [texts(shape, shape.episodes, shape.observation, turn) for turn in range(shape.turns)]

    class Reciter:
        def __init__(self, episode: int) -> None:
            self.lines = [" ".join(map(str, turn[episode])) for turn in read] + [""]
            self.at = 0

        def reset(self) -> Observation:
            return Observation(self.lines[0], (), 0.0, won=False, done=False)

        def step(self, action: str) -> Observation:
            self.at += 1
            return Observation(self.lines[self.at], (), 0.0, won=False, done=self.at == shape.turns)

        def close(self) -> None: ...

    class Recital:
        def environment(self, task: Task) -> Reciter:
            return Reciter(int(task.id))

        def render(self, observation: Observation, task: Task, first: bool) -> str:
            return observation.text

        def action(self, response: str, observation: Observation) -> str:
            return response

    world: Any = Recital()
    tasks = [Task(str(i), "recital", "", {}) for i in range(shape.episodes)]
    config = SamplerConfig(
        max_action_tokens=shape.action,
        batch_buckets=(shape.episodes,),
        turn_buckets=(shape.observation,),
        length_buckets=BUCKETS,
    )
    pool = EnvironmentPool(lambda: world, workers=0, step_timeout_s=60, reset_timeout_s=60)
    return functools.partial(rollout, speaker, pool, world, tasks, 1, config, seed=0)


def decode_only(speaker: Any, shape: Shape, repeats: int) -> list[float]:
    import jax

    from benchmarks.models import sampling
    from rlanything_jax.sampler import decode, extend, new_sessions, pad_rows

    seconds = []
    tokens, count = pad_rows(texts(shape, shape.batch, shape.prompt, 3), shape.prompt)
    how = sampling(shape.batch, shape.response)
    for _ in range(repeats + 1):
        sessions = new_sessions(speaker.model, shape.batch, shape.prompt + shape.response)
        sessions = jax.block_until_ready(extend(speaker.params, speaker.model, sessions, tokens, count))
        start = time.perf_counter()
        jax.block_until_ready(decode(speaker.params, speaker.model, sessions, how, shape.response))
        seconds.append(time.perf_counter() - start)
    return seconds[1:]  # the first one compiles


def without_cache(model: Any, shape: Shape) -> Callable[[], Any]:
    """Some of the new tokens, each by a forward pass over prompt and response."""
    import jax
    import numpy as np

    from rlanything_jax.models import logits

    def run() -> None:
        tokens = np.zeros((shape.batch, shape.prompt + shape.response), np.int32)
        tokens[:, : shape.prompt] = texts(shape, shape.batch, shape.prompt, 3)
        for at in range(shape.prompt, shape.prompt + NAIVE_TOKENS):
            mask = np.arange(tokens.shape[1]) < at
            scores = logits(model.params, model.config, tokens, np.tile(mask, (shape.batch, 1)))[:, at - 1]
            tokens[:, at] = jax.random.categorical(jax.random.key(at), scores)

    return run


def train_step(model: Any, shape: Shape) -> Callable[[], Any]:
    import jax
    import numpy as np

    from rlanything_jax.trainer.batches import Piece, TrainSequence, normalise, pack
    from rlanything_jax.trainer.optimizers import optimizer
    from rlanything_jax.trainer.step import Objective, init_state, supervised_loss, train

    n = shape.train_length
    ids = texts(shape, shape.train_rows, n, 7)
    sequences = [TrainSequence(Piece(row, [1.0] * n, [0.0] * n, [0.0] * n)) for row in ids]
    batches = pack(normalise(sequences), tokens=n * shape.train_rows, lengths=(n,))
    tx = optimizer(1e-6)
    state = init_state(jax.tree.map(np.asarray, model.params), tx)

    def run() -> None:
        nonlocal state
        state, metrics = train(state, {}, model.config, tx, batches, Objective(), supervised_loss)
        jax.block_until_ready((state, metrics))

    return run


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """The child's side: prepares the weights, or measures one workload of ours."""
    from benchmarks.models import costs, export, generator, load

    shape, workload = shape_of(job), job["workload"]
    if workload == "prepare":
        export(job["size"], Path(job["folder"]))
        model, speaker = load(job["folder"])
        greedy = generator(speaker, (20,), temperature=0.0)
        return {"costs": list(costs(model.config)), "greedy": greedy(texts(shape, 4, 12, 5), 8)}
    model, speaker = load(job["folder"])
    note, repeats = "", job["repeats"]
    if workload == "decode":
        count = shape.batch * shape.response
        seconds = decode_only(speaker, shape, repeats)
    else:
        generate = generator(speaker, (*BUCKETS, shape.prompt + shape.response))
        count = {
            "multi-turn": shape.episodes * shape.turns * shape.turn,
            "one-turn": shape.batch * shape.response,
            "train-step": shape.train_rows * shape.train_length,
        }[workload]
        prompts = texts(shape, shape.batch, shape.prompt, 3)
        runs: dict[tuple[str, str], Callable[[], Any]] = {
            ("multi-turn", "ours"): lambda: play(speaker, shape)(),
            ("multi-turn", "naive"): lambda: multi_turn(generate, shape, shape.episodes, shape.episodes),
            ("one-turn", "ours"): lambda: generate(prompts, shape.response),
            ("one-turn", "naive"): lambda: without_cache(model, shape)(),
        }
        run = train_step(model, shape) if workload == "train-step" else runs[workload, job["system"]]
        if (workload, job["system"]) == ("one-turn", "naive"):
            count, note = shape.batch * NAIVE_TOKENS, f"no cache, {NAIVE_TOKENS} tokens of each response"
        if (workload, job["system"]) == ("multi-turn", "naive"):
            note = "history read anew, batched"
        run()  # compiles
        seconds = timed(run, repeats)
    return {"seconds": seconds, "count": count, "peak_mb": peak_mb(), "note": note}


def main() -> None:
    options = arguments(
        "python -m benchmarks.sampler", __doc__ or "", WORKLOADS, ("tiny", "135m")
    ).parse_args()
    if options.job:
        print(json.dumps(measure(json.loads(options.job))))
        return
    bound = Bound(**in_child("benchmarks.measure", {}))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for size in options.sizes:
            job = {
                "size": size,
                "folder": str(Path(scratch, size)),
                "shrink": options.shrink,
                "repeats": options.repeats,
            }
            prepared = in_child("benchmarks.sampler", job | {"workload": "prepare"})
            rows += rows_of_size(size, job, prepared, options, bound)
    show(rows, bound, "sampler")
    write(rows, options.json)


def rows_of_size(
    size: str, job: dict[str, Any], prepared: dict[str, Any], options: Any, bound: Bound
) -> list[Row]:
    rows = []
    shape, costs = shape_of(job), Costs(*prepared["costs"])
    installed = {system: has(system) for system in options.systems}
    for system in ("transformers", "tunix"):
        if installed.get(system):
            theirs = in_child(
                "benchmarks.peers", job | {"workload": "greedy", "system": system}, system=system
            )
            if theirs["tokens"] != prepared["greedy"]:
                print(f"{system} continues greedily with other tokens than ours: the weights differ")
    for workload in options.workloads:
        for system in (s for s in options.systems if s in MEASURED[workload]):
            if not installed[system]:
                rows.append(missing(workload, system, size, "tokens/s"))
                continue
            module = "benchmarks.sampler" if system in ("ours", "naive") else "benchmarks.peers"
            result = in_child(module, job | {"workload": workload, "system": system}, system=system)
            least = least_seconds(workload, shape, costs, bound)
            rows.append(row(workload, system, size, "tokens/s", result, least))
            print(f"{size} {workload} {system}: {rows[-1].value:,.1f} tokens/s", flush=True)
    return rows


if __name__ == "__main__":
    main()
