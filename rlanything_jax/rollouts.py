"""Episodes: the policy's sampler plays the environments, every token it reads or writes kept with the trajectory.

What was sampled is what is trained on: ids, log-probabilities and spans are recorded here once and never re-tokenized. A session
keeps its cache across turns; where an episode ends, the next one takes its slot. Several groups of slots may be in flight: while
the environments of one step in their worker processes, another one decodes. None of this changes what is sampled.
Where a chat template cannot go on from what was sampled, the context starts anew as the next segment of the trajectory.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rlanything_jax.dialogue import Dialogue, Exchange, Speaker, Transcript
from rlanything_jax.envs.base import Observation, World
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.sampler import Buckets, Response, Slots
from rlanything_jax.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    """Limits of generation. Every combination of buckets that occurs is compiled once."""

    temperature: float = 1.0
    top_k: int = 0  # tokens to choose from; 0 for all
    top_p: float = 1.0  # mass of the likeliest tokens to choose from
    stop: tuple[str, ...] = ()  # strings that end a response, behind the token that completes one
    max_action_tokens: int = 12
    batch_buckets: tuple[int, ...] = (16, 64, 128)  # episodes of one group; more of them queue
    turn_buckets: tuple[int, ...] = (32, 128)  # tokens of one observation
    length_buckets: tuple[int, ...] = (256, 512)  # tokens of one context
    groups: int = 1  # in flight: with 2, one decodes while the environments of the other step
    cache_mb: float = 0.0  # of keys and values of all groups; 0 for what the largest buckets take

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"sampler.groups={self.groups} plays nothing: give at least 1")
        if self.top_k < 0 or not 0 <= self.top_p <= 1:
            raise ValueError(
                f"sampler.top_k={self.top_k} must be at least 0 and sampler.top_p={self.top_p:g} between 0 and 1"
            )


@dataclasses.dataclass
class Segment:
    """One context [S], with the sampler's log-probability of each sampled token."""

    tokens: list[int]
    logprobs: list[float]  # of the distribution that was sampled; 0 where a token was read
    kept: list[float] = dataclasses.field(default_factory=list)  # log of the mass that top-k and top-p left

    @property
    def full_logprobs(self) -> list[float]:
        """The tokens' log-probabilities before top-k and top-p cut the distribution, which are what a trainer computes."""
        return (
            [p + kept for p, kept in zip(self.logprobs, self.kept, strict=True)]
            if self.kept
            else self.logprobs
        )

    def read(self, tokens: Sequence[int]) -> None:
        nothing = [0.0] * len(tokens)
        self.write(Response(list(tokens), nothing, nothing))

    def write(self, response: Response) -> None:
        self.tokens.extend(response.tokens)
        self.logprobs.extend(response.logprobs)
        self.kept.extend(response.kept)


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
    label: int | None = None  # ground truth of the world, +1 or -1
    passed: tuple[bool, ...] = ()  # of each of the task's own tests, where it has some


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
    states: list[str] = dataclasses.field(default_factory=list)  # before each step, and behind the last
    won: bool = False
    score: float = 0.0  # the environment's own measure of progress at the end
    truncated: bool = False  # the cache was full before the episode was over
    error: str | None = None  # the environment failed: the outcome means nothing
    temperature: float = 1.0  # at which the policy sampled
    version: int = 0  # of the policy's weights

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
    version: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    meanwhile: Callable[[Sequence[Trajectory]], None] = lambda over: None,
) -> list[Trajectory]:
    """Plays N episodes of each task to their end.

    Args:
      world: says what the policy reads of an observation, and which action a response means.
      n: rollouts per task.
      seed, first_request: name the random streams; episode i uses request `first_request + i`, whatever its slot or neighbours.
      version: of the policy's weights, recorded with the trajectories.
      progress: called with (episodes done, episodes in all).
      meanwhile: called while environments are at work, with the episodes that are over, in the order in which they ended. Neither
        that order nor the moments of the calls depend on how fast anything is.

    Returns:
      The trajectories in the order [task, rollout].

    Raises:
      ValueError: a prompt that fits no bucket, or a cache that `config.cache_mb` cannot hold.
    """
    episodes = [
        Trajectory(
            task,
            j,
            first_request + i * n + j,
            policy.dialogue,
            temperature=config.temperature,
            version=version,
        )
        for i, task in enumerate(tasks)
        for j in range(n)
    ]
    rows = min(group_rows(config, policy.model), -(-len(tasks) // config.groups) * n)
    run = _Run(policy, pool, world, config, seed, episodes, collections.deque(range(len(episodes))), progress)
    flying = [_fly(run, range(group * rows, (group + 1) * rows)) for group in range(config.groups)]
    try:
        while flying:
            flying = [group for group in flying if next(group, "landed") != "landed"]
            if flying:
                meanwhile(run.over)
    except Exception:
        pool.collect(sorted(pool.under_way()))  # the next rollout finds the pool free
        raise
    return episodes


def group_rows(config: SamplerConfig, model: ModelConfig) -> int:
    """Episodes that a group plays at once. Raises ValueError where `config.cache_mb` holds no batch at all."""
    token = 2 * model.layers * model.kv_heads * model.head_dim * model.jax_dtype.itemsize
    row_mb = config.groups * token * config.length_buckets[-1] / 1e6
    fitting = [n for n in config.batch_buckets if not config.cache_mb or n * row_mb <= config.cache_mb]
    if not fitting:
        raise ValueError(
            f"sampler.cache_mb={config.cache_mb:g} does not hold the smallest batch, {config.batch_buckets[0] * row_mb:.3g} MB: "
            f"raise it, or lower sampler.batch_buckets={config.batch_buckets} or length_buckets={config.length_buckets}"
        )
    return fitting[-1]


@dataclasses.dataclass
class _Run:
    """What the groups of a rollout share."""

    policy: Speaker
    pool: EnvironmentPool
    world: World
    config: SamplerConfig
    seed: int
    episodes: list[Trajectory]
    queue: collections.deque[int]  # episodes that no group has begun
    progress: Callable[[int, int], None]
    over: list[Trajectory] = dataclasses.field(default_factory=list)


class _Reading(NamedTuple):
    tokens: list[int]
    restart: bool  # into an empty context


@dataclasses.dataclass
class _Live:
    """An episode that is being played."""

    seat: int  # its slot in the pool of environments
    observation: Observation
    text: str  # what the policy reads of the observation
    reading: _Reading | None = None  # None: the episode begins


def _fly(run: _Run, seats: Sequence[int]) -> Iterator[None]:
    """Plays episodes of the queue, one in each seat, until it is empty; yields whenever environments are at work."""
    config, dialogue, pool, world = run.config, run.policy.dialogue, run.pool, run.world
    buckets = Buckets(config.batch_buckets, config.turn_buckets, config.length_buckets)
    slots = Slots(run.policy.params, run.policy.model, buckets, config.max_action_tokens)
    free = list(reversed(seats))
    live: dict[int, _Live] = {}
    opened: tuple[str, list[int]] = ("", [])
    while run.queue or live:
        come = [run.queue.popleft() for _ in range(min(len(free), len(run.queue)))]
        if come:
            asked = pool.submit_reset([(free.pop(), run.episodes[i].task) for i in come])
            yield
            for i, seat, observation in zip(come, asked, pool.collect(asked), strict=True):
                episode = run.episodes[i]
                text = _render(world, observation, episode.task, True)
                if text != opened[0]:
                    opened = text, dialogue.open(text)
                episode.segments.append(Segment([], []))
                episode.segments[0].read(opened[1])
                episode.states.append(_state(observation, text))
                episode.error = observation.info.get("error")
                live[i] = _Live(seat, observation, text)
        _land(run, live, free)
        if not live:
            continue
        turns = {i: one.reading for i, one in live.items()}
        prompts = {i: run.episodes[i].tokens for i, reading in turns.items() if reading is None}
        readings = {i: reading for i, reading in turns.items() if reading is not None}
        slots.arrange({i: len(run.episodes[i].tokens) for i in readings}, prompts)
        if readings:
            slots.read(
                {i: reading.tokens for i, reading in readings.items()},
                {i for i, reading in readings.items() if reading.restart},
            )
        responses = slots.sample(
            {i: run.episodes[i].request for i in live},
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            stop=dialogue.stop,
            seed=run.seed,
            cut=(lambda tokens: _until(tokens, config.stop, dialogue)) if config.stop else None,
        )
        for i, one in live.items():
            _record(run.episodes[i], one.text, responses[i], world, one.observation)
        asked = pool.submit_step([(one.seat, run.episodes[i].steps[-1].action) for i, one in live.items()])
        yield
        for (i, one), observation in zip(live.items(), pool.collect(asked), strict=True):
            one.observation, one.text = observation, _render(world, observation, run.episodes[i].task, False)
            one.reading = _observe(run.episodes[i], observation, one.text, config)
        _land(run, live, free)


def _land(run: _Run, live: dict[int, _Live], free: list[int]) -> None:
    """Takes the episodes that are over out of `live` and frees their seats."""
    over = [i for i, one in live.items() if one.observation.done or run.episodes[i].truncated]
    free += [live.pop(i).seat for i in over]
    run.over += [run.episodes[i] for i in over]
    run.progress(len(run.over), len(run.episodes))


def _until(tokens: list[int], stop: Sequence[str], dialogue: Dialogue) -> int:
    """How many of a response's tokens there are up to the one that completes a stop string, itself included."""
    if not any(string in dialogue.text(tokens) for string in stop):
        return len(tokens)
    return next(
        n for n in range(1, len(tokens) + 1) if any(string in dialogue.text(tokens[:n]) for string in stop)
    )


def _render(world: World, observation: Observation, task: Task, first: bool) -> str:
    """What the policy reads; nothing where the environment failed and so left nothing to render."""
    return "" if "error" in observation.info else world.render(observation, task, first)


def _state(observation: Observation, text: str) -> str:
    """Which state the episode is in: what the environment calls it, else what was read."""
    return str(observation.info.get("state", text))


def _record(
    episode: Trajectory, text: str, response: Response, world: World, observation: Observation
) -> None:
    """Writes down a sampled response to `observation`, which the policy read as `text`."""
    written = episode.dialogue.text(response.tokens)
    start, end = len(episode.tokens), len(episode.tokens) + len(response.tokens)
    action = world.action(written, observation)
    episode.steps.append(Step(text, written, action, len(episode.segments) - 1, start, end))
    episode.segments[-1].write(response)


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
    episode.segments[-1].read(ids if fits else ids[:room])
    episode.last = text
    episode.states.append(_state(observation, text))
    if not restart:
        step.point = max(len(episode.tokens) - (dialogue.closing if fits and text else 0), step.end)
    step.admissible = bool(observation.info.get("admissible", True))
    step.label = observation.info.get("label")
    step.passed = tuple(observation.info.get("passed", ()))
    episode.won, episode.score = observation.won, observation.score
    episode.error = observation.info.get("error")
    fits = fits and room - len(ids) >= config.max_action_tokens
    episode.truncated = not fits and not observation.done
    return _Reading(ids, restart)
