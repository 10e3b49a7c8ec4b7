"""Episodes: the policy's sampler plays the environments, every token it reads or writes kept with the trajectory.

What was sampled is what is trained on: ids, log-probabilities and spans are recorded here once and never re-tokenized. The prompt
of a task is read once and forked into its N rollouts; a session keeps its cache across turns; the batch shrinks as episodes end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.decoder import Params
from rlanything_jax.models.tokenizer import END, special_id
from rlanything_jax.sampler import (
    Sampling,
    Sessions,
    bucket,
    decode,
    extend,
    new_sessions,
    pad_rows,
    select,
)
from rlanything_jax.tasks.task import Task

# (observation, task, is this the first of the episode) -> what the policy reads before it acts
Render = Callable[[Observation, Task, bool], str]


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    """Limits of generation. Every combination of buckets that occurs is compiled once."""

    temperature: float = 1.0
    max_action_tokens: int = 12
    batch_buckets: tuple[int, ...] = (16, 64, 128)
    turn_buckets: tuple[int, ...] = (32, 128)  # tokens of one observation
    length_buckets: tuple[int, ...] = (256, 512)  # tokens of one episode


@dataclasses.dataclass
class Step:
    """One step; spans are half-open ranges of the trajectory's tokens."""

    observation: str  # what the policy read before it acted
    response: str
    start: int  # first sampled token
    end: int  # behind the last sampled token
    point: int = 0  # behind the observation that followed: where the judge's branches leave the trunk
    admissible: bool = False
    label: int | None = None  # ground truth of the world, for measuring only


@dataclasses.dataclass
class Trajectory:
    """One episode as tokens [S], with the sampler's log-probability of each sampled token."""

    task: Task
    rollout: int
    request: int
    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)  # 0 where a token was read
    steps: list[Step] = dataclasses.field(default_factory=list)
    won: bool = False
    truncated: bool = False  # the cache was full before the episode was over
    error: str | None = None  # the environment failed: the outcome means nothing

    @property
    def outcome(self) -> int:
        return 1 if self.won else -1


def rollout(
    params: Params,
    model: ModelConfig,
    tokenizer: Tokenizer,
    pool: EnvironmentPool,
    render: Render,
    tasks: Sequence[Task],
    n: int,
    config: SamplerConfig,
    *,
    seed: int,
    first_request: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Trajectory]:
    """Plays N episodes of each task to their end.

    Args:
      params: unstacked parameters of the policy.
      render: the text of an observation for this policy.
      n: rollouts per task.
      seed, first_request: name the random streams; episode i uses request `first_request + i`, whatever its slot or neighbours.
      progress: called with (episodes done, episodes in all).

    Returns:
      The trajectories in the order [task, rollout].
    """
    at_once = max(1, config.batch_buckets[-1] // n)
    if len(tasks) > at_once:  # more episodes than rows: one load after the other
        played: list[Trajectory] = []
        for start in range(0, len(tasks), at_once):
            played += rollout(
                params,
                model,
                tokenizer,
                pool,
                render,
                tasks[start : start + at_once],
                n,
                config,
                seed=seed,
                first_request=first_request + start * n,
                progress=_offset(progress, start * n, len(tasks) * n),
            )
        return played
    end = special_id(tokenizer, END)
    episodes = [
        Trajectory(task, j, first_request + i * n + j) for i, task in enumerate(tasks) for j in range(n)
    ]
    observations = dict(enumerate(pool.reset([(i, episode.task) for i, episode in enumerate(episodes)])))
    texts = {i: _render(render, o, episodes[i].task, True) for i, o in observations.items()}
    ids = _encode(tokenizer, texts)
    for i, episode in enumerate(episodes):
        _append_read(episode, ids[i])
        episode.error = observations[i].info.get("error")
    # Of a rollout whose environment did not fail at once.
    prompts = [next((ids[j] for j in range(i, i + n) if ids[j]), []) for i in range(0, len(episodes), n)]
    batch = _read_prompts(params, model, prompts, n, config)
    live = [i for i, observation in observations.items() if not observation.done]
    while live:
        batch = _fit(batch, live, max(len(episodes[i].tokens) for i in live), config)
        batch, sampled = _act(params, model, batch, live, episodes, config, seed, end)
        for i, (new, logprobs) in sampled.items():
            response = tokenizer.decode(new[:-1] if new[-1] == end else new)
            start = len(episodes[i].tokens)
            episodes[i].steps.append(Step(texts[i], response, start, start + len(new)))
            episodes[i].tokens += new
            episodes[i].logprobs += logprobs
        actions = [(i, episodes[i].steps[-1].response) for i in live]
        observations = dict(zip(live, pool.step(actions), strict=True))
        texts = {i: _render(render, o, episodes[i].task, False) for i, o in observations.items()}
        ids = _encode(tokenizer, texts)
        for i, observation in observations.items():
            _observe(episodes[i], observation, ids[i], config)
        live = [i for i in live if not (observations[i].done or episodes[i].truncated)]
        progress(len(episodes) - len(live), len(episodes))
        if live:
            batch = _fit(batch, live, max(len(episodes[i].tokens) for i in live), config)
            width = bucket(max(len(ids[i]) for i in live), config.turn_buckets)
            reads = [ids[i] if i in live else [] for i in batch.rows]
            tokens, count = pad_rows(reads, width)
            batch = batch._replace(sessions=extend(params, model, batch.sessions, tokens, count))
    return episodes


def _offset(progress: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: progress(before + done, total)


class _Batch(NamedTuple):
    sessions: Sessions
    rows: list[int]  # the episode in each row; -1 where a row only fills the bucket


def _render(render: Render, observation: Observation, task: Task, first: bool) -> str:
    """What the policy reads; nothing where the environment failed and so left nothing to render."""
    return "" if "error" in observation.info else render(observation, task, first)


def _encode(tokenizer: Tokenizer, texts: dict[int, str]) -> dict[int, list[int]]:
    encodings = tokenizer.encode_batch(list(texts.values()), add_special_tokens=False)
    return {i: encoding.ids for i, encoding in zip(texts, encodings, strict=True)}


def _append_read(episode: Trajectory, ids: list[int]) -> None:
    episode.tokens += ids
    episode.logprobs += [0.0] * len(ids)


def _observe(episode: Trajectory, observation: Observation, ids: list[int], config: SamplerConfig) -> None:
    """Records what followed the last action. An episode whose cache cannot hold the next turn ends here."""
    room = config.length_buckets[-1] - len(episode.tokens)
    fits = len(ids) <= min(room, config.turn_buckets[-1])
    _append_read(episode, ids if fits else ids[:room])
    step = episode.steps[-1]
    step.point = len(episode.tokens)
    step.admissible = bool(observation.info.get("admissible", True))
    step.label = observation.info.get("label")
    episode.won, episode.error = observation.won, observation.info.get("error")
    fits = fits and room - len(ids) >= config.max_action_tokens
    episode.truncated = not fits and not observation.done


def _read_prompts(
    params: Params, model: ModelConfig, prompts: list[list[int]], n: int, config: SamplerConfig
) -> _Batch:
    """Reads each task's prompt once, then forks it into its N episodes."""
    width = bucket(max(map(len, prompts)), config.turn_buckets)
    size = bucket(len(prompts), config.batch_buckets)
    tokens, count = pad_rows(prompts + [[]] * (size - len(prompts)), width)
    capacity = bucket(width + config.max_action_tokens, config.length_buckets)
    sessions = extend(params, model, new_sessions(model, size, capacity), tokens, count)
    rows = list(range(len(prompts) * n))
    total = bucket(len(rows), config.batch_buckets)
    source = np.zeros(total, np.int32)
    source[: len(rows)] = np.arange(len(rows)) // n
    return _Batch(select(sessions, source, capacity), rows + [-1] * (total - len(rows)))


def _fit(batch: _Batch, live: list[int], longest: int, config: SamplerConfig) -> _Batch:
    """Drops finished rows when a smaller bucket holds the rest, and grows the cache when the longest row will need it."""
    size = min(bucket(len(live), config.batch_buckets), len(batch.rows))
    capacity = max(bucket(longest + config.max_action_tokens, config.length_buckets), batch.sessions.capacity)
    if size == len(batch.rows) and capacity == batch.sessions.capacity:
        return batch
    rows = live + [-1] * (size - len(live))
    source = np.array([batch.rows.index(i) if i >= 0 else 0 for i in rows], np.int32)
    return _Batch(select(batch.sessions, source, capacity), rows)


def _act(
    params: Params,
    model: ModelConfig,
    batch: _Batch,
    live: list[int],
    episodes: list[Trajectory],
    config: SamplerConfig,
    seed: int,
    end: int,
) -> tuple[_Batch, dict[int, tuple[list[int], list[float]]]]:
    """One action of every live episode: {episode: (tokens, logprobs)}."""
    alive, size = set(live), len(batch.rows)
    sampling = Sampling(
        temperature=np.full(size, config.temperature, np.float32),
        budget=np.array([config.max_action_tokens if i in alive else 0 for i in batch.rows], np.int32),
        stop=np.full((size, 1), end, np.int32),
        request=np.array([episodes[i].request if i >= 0 else 0 for i in batch.rows], np.uint32),
        seed=np.uint32(seed),
    )
    sessions, sampled = decode(params, model, batch.sessions, sampling, config.max_action_tokens)
    tokens, logprobs, count = (np.asarray(x) for x in sampled)
    actions = {
        i: (tokens[row, : count[row]].tolist(), logprobs[row, : count[row]].tolist())
        for row, i in enumerate(batch.rows)
        if i in alive
    }
    return _Batch(sessions, batch.rows), actions
