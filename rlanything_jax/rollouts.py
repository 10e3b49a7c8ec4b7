"""Episodes: the policy's sampler plays the environments, every token it reads or writes kept with the trajectory.

What was sampled is what is trained on: ids, log-probabilities and spans are recorded here once and never re-tokenized. The prompt
of a task is read once and forked into its N rollouts; a session keeps its cache across turns; the batch shrinks as episodes end.
Where a chat template cannot go on from what was sampled, the context starts anew as the next segment of the trajectory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlanything_jax.dialogue import Dialogue, Exchange, Speaker, Transcript
from rlanything_jax.envs.base import Observation, World
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.sampler import (
    Sampling,
    Sessions,
    bucket,
    decode,
    extend,
    forget,
    new_sessions,
    pad_rows,
    select,
)
from rlanything_jax.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    """Limits of generation. Every combination of buckets that occurs is compiled once."""

    temperature: float = 1.0
    max_action_tokens: int = 12
    batch_buckets: tuple[int, ...] = (16, 64, 128)
    turn_buckets: tuple[int, ...] = (32, 128)  # tokens of one observation
    length_buckets: tuple[int, ...] = (256, 512)  # tokens of one context


@dataclasses.dataclass
class Segment:
    """One context [S], with the sampler's log-probability of each sampled token."""

    tokens: list[int]
    logprobs: list[float]  # 0 where a token was read


@dataclasses.dataclass
class Step:
    """One step; spans are half-open ranges of the tokens of its segment."""

    observation: str  # what the policy read before it acted
    response: str
    action: str  # what the environment was given of it
    segment: int  # number of the context in which it was sampled
    start: int  # first sampled token
    end: int  # behind the last sampled token
    point: int = 0  # behind the text of the observation that followed, in the same segment
    admissible: bool = False
    label: int | None = None  # ground truth of the world, for measuring only


@dataclasses.dataclass
class Trajectory:
    """One episode: its contexts, mostly a single one, and the steps in them."""

    task: Task
    rollout: int
    request: int
    dialogue: Dialogue
    segments: list[Segment] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    last: str = ""  # what followed the last step
    won: bool = False
    truncated: bool = False  # the cache was full before the episode was over
    error: str | None = None  # the environment failed: the outcome means nothing

    @property
    def outcome(self) -> int:
        return 1 if self.won else -1

    @property
    def tokens(self) -> list[int]:
        """The context as it stands."""
        return self.segments[-1].tokens

    @property
    def logprobs(self) -> list[float]:
        return self.segments[-1].logprobs

    def exchanges(self) -> list[Exchange]:
        return [Exchange(step.observation, step.response) for step in self.steps]

    def transcript(self, reader: Dialogue) -> Transcript:
        """The episode as `reader` reads it: token for token as it was sampled, where it speaks as the policy does."""
        if reader is self.dialogue and len(self.segments) == 1:
            points = [step.point for step in self.steps]
            return Transcript(self.tokens[: points[-1]] if points else self.tokens, points)
        return reader.transcript(self.exchanges(), self.last)


def rollout(
    policy: Speaker,
    pool: EnvironmentPool,
    world: World,
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
      world: says what the policy reads of an observation, and which action a response means.
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
                policy,
                pool,
                world,
                tasks[start : start + at_once],
                n,
                config,
                seed=seed,
                first_request=first_request + start * n,
                progress=_offset(progress, start * n, len(tasks) * n),
            )
        return played
    dialogue = policy.dialogue
    episodes = [
        Trajectory(task, j, first_request + i * n + j, dialogue)
        for i, task in enumerate(tasks)
        for j in range(n)
    ]
    observations = dict(enumerate(pool.reset([(i, episode.task) for i, episode in enumerate(episodes)])))
    texts = {i: _render(world, o, episodes[i].task, True) for i, o in observations.items()}
    opened = {text: dialogue.open(text) if text else [] for text in dict.fromkeys(texts.values())}
    for i, episode in enumerate(episodes):
        episode.segments.append(_read_only(opened[texts[i]]))
        episode.error = observations[i].info.get("error")
    # Of a rollout whose environment did not fail at once.
    prompts = [
        next((episodes[j].tokens for j in range(i, i + n) if texts[j]), [])
        for i in range(0, len(episodes), n)
    ]
    batch = _read_prompts(policy, prompts, n, config)
    live = [i for i, observation in observations.items() if not observation.done]
    while live:
        batch = _fit(batch, live, max(len(episodes[i].tokens) for i in live), config)
        batch, sampled = _act(policy, batch, live, episodes, config, seed)
        for i, (new, logprobs) in sampled.items():
            _record(episodes[i], texts[i], new, logprobs, world, observations[i])
        actions = [(i, episodes[i].steps[-1].action) for i in live]
        observations = dict(zip(live, pool.step(actions), strict=True))
        texts = {i: _render(world, o, episodes[i].task, False) for i, o in observations.items()}
        reads = {i: _observe(episodes[i], observations[i], texts[i], config) for i in live}
        live = [i for i in live if not (observations[i].done or episodes[i].truncated)]
        progress(len(episodes) - len(live), len(episodes))
        if live:
            batch = _fit(batch, live, max(len(episodes[i].tokens) for i in live), config)
            batch = _read(policy, batch, {i: reads[i] for i in live}, config)
    return episodes


def _offset(progress: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: progress(before + done, total)


class _Batch(NamedTuple):
    sessions: Sessions
    rows: list[int]  # the episode in each row; -1 where a row only fills the bucket


class _Reading(NamedTuple):
    tokens: list[int]
    restart: bool  # into an empty context


def _render(world: World, observation: Observation, task: Task, first: bool) -> str:
    """What the policy reads; nothing where the environment failed and so left nothing to render."""
    return "" if "error" in observation.info else world.render(observation, task, first)


def _read_only(ids: list[int]) -> Segment:
    return Segment(list(ids), [0.0] * len(ids))


def _record(
    episode: Trajectory,
    text: str,
    new: list[int],
    logprobs: list[float],
    world: World,
    observation: Observation,
) -> None:
    """Writes down a sampled response to `observation`, which the policy read as `text`."""
    response = episode.dialogue.text(new)
    start, end = len(episode.tokens), len(episode.tokens) + len(new)
    action = world.action(response, observation)
    episode.steps.append(Step(text, response, action, len(episode.segments) - 1, start, end))
    episode.tokens.extend(new)
    episode.logprobs.extend(logprobs)


def _observe(episode: Trajectory, observation: Observation, text: str, config: SamplerConfig) -> _Reading:
    """Records what followed the last action; returns what the policy reads of it.

    An episode whose context cannot hold the next turn ends here.
    """
    step, dialogue = episode.steps[-1], episode.dialogue
    written = episode.tokens[step.start : step.end]
    ids, restart = dialogue.extend(episode.exchanges(), written, text) if text else ([], False)
    if restart:
        step.point = step.end
        episode.segments.append(Segment([], []))
    room = config.length_buckets[-1] - len(episode.tokens)
    fits = len(ids) <= min(room, config.turn_buckets[-1])
    read = _read_only(ids if fits else ids[:room])
    episode.tokens.extend(read.tokens)
    episode.logprobs.extend(read.logprobs)
    episode.last = text
    if not restart:
        step.point = max(len(episode.tokens) - (dialogue.closing if fits and text else 0), step.end)
    step.admissible = bool(observation.info.get("admissible", True))
    step.label = observation.info.get("label")
    episode.won, episode.error = observation.won, observation.info.get("error")
    fits = fits and room - len(ids) >= config.max_action_tokens
    episode.truncated = not fits and not observation.done
    return _Reading(ids, restart)


def _read_prompts(policy: Speaker, prompts: list[list[int]], n: int, config: SamplerConfig) -> _Batch:
    """Reads each task's prompt once, then forks it into its N episodes."""
    params, model, _ = policy
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


def _read(policy: Speaker, batch: _Batch, reads: Mapping[int, _Reading], config: SamplerConfig) -> _Batch:
    """One observation for each episode in `reads`."""
    params, model, _ = policy
    sessions = batch.sessions
    if any(read.restart for read in reads.values()):
        anew = np.array([i in reads and reads[i].restart for i in batch.rows])
        sessions = forget(sessions, anew)
    width = bucket(max(len(read.tokens) for read in reads.values()), config.turn_buckets)
    tokens, count = pad_rows([reads[i].tokens if i in reads else [] for i in batch.rows], width)
    return batch._replace(sessions=extend(params, model, sessions, tokens, count))


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
    policy: Speaker,
    batch: _Batch,
    live: list[int],
    episodes: list[Trajectory],
    config: SamplerConfig,
    seed: int,
) -> tuple[_Batch, dict[int, tuple[list[int], list[float]]]]:
    """One action of every live episode: {episode: (tokens, logprobs)}."""
    alive, size = set(live), len(batch.rows)
    sampling = Sampling(
        temperature=np.full(size, config.temperature, np.float32),
        budget=np.array([config.max_action_tokens if i in alive else 0 for i in batch.rows], np.int32),
        stop=np.tile(np.array(policy.dialogue.stop, np.int32), (size, 1)),
        request=np.array([episodes[i].request if i >= 0 else 0 for i in batch.rows], np.uint32),
        seed=np.uint32(seed),
    )
    sessions, sampled = decode(
        policy.params, policy.model, batch.sessions, sampling, config.max_action_tokens
    )
    tokens, logprobs, count = (np.asarray(x) for x in sampled)
    actions = {
        i: (tokens[row, : count[row]].tolist(), logprobs[row, : count[row]].tolist())
        for row, i in enumerate(batch.rows)
        if i in alive
    }
    return _Batch(sessions, batch.rows), actions
