"""Algorithm 1 as a whole: who learns, what is counted, and what stays out."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
import pytest

from rlanything_jax import adaptation, loop
from rlanything_jax.loop import Setting, State, Streams, iterate
from rlanything_jax.rollouts import Trajectory
from rlanything_jax.sampler.generate import Response


def ignore(name: str, done: int, total: int) -> None:
    pass


def configured(setting: Setting, **changes: object) -> Setting:
    config = setting.config.copy_and_resolve_references()
    config.update(changes)
    return dataclasses.replace(setting, config=config)


def outcomes(monkeypatch: pytest.MonkeyPatch, won: Callable[[Trajectory], bool]) -> None:
    """Lets `won` decide the episodes, which a tiny policy never wins by itself."""
    play = loop.rollout

    def rollout(*args, **kwargs) -> list[Trajectory]:
        played = play(*args, **kwargs)
        for trajectory in played:
            trajectory.won = won(trajectory)
        return played

    monkeypatch.setattr(loop, "rollout", rollout)


def rewrites(monkeypatch: pytest.MonkeyPatch, texts: Sequence[str]) -> None:
    """Lets the rewriter write `texts` for each prompt."""
    responses = [Response(text, True, [], []) for text in texts]
    monkeypatch.setattr(adaptation, "generate", lambda *args, **kwargs: [responses for _ in args[1]])


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize("learns", ["policy", "judge", "tasks", "all", "none"])
def test_each_part_learns_only_where_it_is_switched_on(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch, learns: str
) -> None:
    """The ablations of the paper's table: policy only, with reward model, with environment."""
    outcomes(monkeypatch, lambda trajectory: trajectory.rollout == 0)
    rewrites(monkeypatch, ["hint on"])
    on = {name: learns in (name, "all") for name in ("policy", "judge", "tasks")}
    switched = configured(
        setting, train_policy=on["policy"], train_judge=on["judge"], adapt_tasks=on["tasks"]
    )
    switched.config.adapt.update(low=0.0, high=0.4)  # every task is too easy
    before = jax.tree.map(np.asarray, (state.policy, state.judge))
    metrics, _ = iterate(switched, state, ignore)
    assert same(before[0].params, state.policy.params) is not on["policy"]
    assert same(before[1].params, state.judge.params) is not on["judge"]
    assert same(before[0], state.policy) is not on["policy"]  # nor do moments or counters move
    assert same(before[1], state.judge) is not on["judge"]
    assert bool(state.tasks.events()) is on["tasks"]
    assert ("policy/loss" in metrics, "judge/loss" in metrics) == (on["policy"], on["judge"])
    assert ("tasks/proposed" in metrics) is on["tasks"]
    assert state.iteration == 1
    assert all(np.isfinite(value) for value in metrics.values())


def test_lost_episodes_and_proposals_stay_out_of_the_success_rate(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = state.tasks.originals()[0]
    child = setting.world.rewrite(parent, "hint on", state.tasks.fingerprints())
    state.tasks.propose(
        child, direction="easier", critique="", edit="hint on", accuracy_before=0.0, iteration=0
    )
    play = loop.rollout

    def rollout(*args, **kwargs) -> list[Trajectory]:
        played = play(*args, **kwargs)
        fresh, lost, more, last = played[:4]
        assert [t.task for t in played[4:]] == [child, child]
        for trajectory in (fresh, lost, *played[4:]):
            trajectory.won = True
        lost.error = "the house burnt down"
        for trajectory, admissible in ((fresh, True), (lost, False), (more, True), (last, True)):
            for step in trajectory.steps:
                step.admissible = admissible
        more.steps[0].admissible = False
        return played

    monkeypatch.setattr(loop, "rollout", rollout)
    metrics, batch = iterate(setting, state, ignore)
    assert metrics["rollout/success"] == pytest.approx(1 / 3)
    assert metrics["rollout/inadmissible"] == pytest.approx(1 / 12)
    assert metrics["rollout/steps"] == 4 and metrics["rollout/lost"] == 1
    # A proposal's rollouts decide about it and are trained on like all others.
    assert batch.tasks[2] == child
    assert batch.arrays.step_mask.any(-1).tolist() == [[True, False], [True, True], [True, True]]
    assert [e["event"] for e in state.tasks.events() if e["task"] == child.id] == ["proposed", "rejected"]


def test_a_proposal_is_played_and_trained_on_in_the_next_iteration(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(monkeypatch, lambda trajectory: trajectory.rollout == 0 or trajectory.task.parent is None)
    rewrites(monkeypatch, ["hint on"])
    trained = []
    monkeypatch.setattr(
        loop,
        "policy_sequences",
        lambda t, *args, make=loop.policy_sequences: trained.append(t) or make(t, *args),
    )
    first, batch = iterate(setting, state, ignore)
    (pending,) = state.tasks.pending()
    assert first["tasks/proposed"] == 1 and first["tasks/accepted"] == 0
    assert pending not in batch.tasks and len(batch.tasks) == 2
    before = len(trained)
    rewrites(monkeypatch, ["nonsense"])
    second, batch = iterate(setting, state, ignore)
    assert batch.tasks[2:] == [pending]
    assert [t.won for t in batch.trajectories[4:]] == [True, False]
    assert {t.task for t in trained[before:]} >= {pending}
    assert state.tasks.accepted() == [pending]  # 0.2 < 0.5 < 1
    assert second["tasks/accepted"] == second["tasks/accepted_total"] == 1
    assert pending in state.tasks.sample(2, 2)  # from now on drawn like any other


@pytest.mark.parametrize(
    ("won", "most", "trained"), [(2, 4, 4), (2, 3, 2), (2, 2, 2), (1, 4, 2), (0, 4, 0), (4, 4, 0)]
)
def test_the_judge_learns_from_as_many_successes_as_failures(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch, won: int, most: int, trained: int
) -> None:
    outcomes(monkeypatch, lambda t: t.request < won)
    vote = loop.vote

    def disagree(*args, **kwargs):
        return [
            [[dataclasses.replace(v, score=s) for v, s in zip(step, (1, -1), strict=True)] for step in votes]
            for votes in vote(*args, **kwargs)
        ]

    monkeypatch.setattr(loop, "vote", disagree)
    limited = configured(setting, train_policy=False, adapt_tasks=False)
    limited = dataclasses.replace(limited, reward=dataclasses.replace(limited.reward, trajectories=most))
    groups = []
    train = loop.train_epoch
    monkeypatch.setattr(
        loop, "train_epoch", lambda *args, **kwargs: groups.append(args[4]) or train(*args, **kwargs)
    )
    _, batch = iterate(limited, state, ignore)
    (sequences,) = groups
    assert len(sequences) == trained
    outcome = {tuple(t.tokens): t.won for t in batch.trajectories}
    assert sum(outcome[tuple(s.trunk.tokens)] for s in sequences) == trained / 2


@pytest.mark.parametrize(
    ("bounds", "kept"), [((0.0, 1.0), {0, 1}), ((0.2, 0.8), {1}), ((0.6, 1.0), set()), ((0.0, 0.2), {0})]
)
def test_a_task_filter_keeps_the_tasks_of_the_wanted_success_rate(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch, bounds: tuple, kept: set
) -> None:
    """Task 0 is never won, task 1 half the time."""
    fresh = state.tasks.sample(0, 2)
    outcomes(monkeypatch, lambda t: t.task == fresh[1] and t.rollout == 1)
    filtered = configured(setting, train_judge=False)
    filtered.config.policy.task_filter = bounds
    trained = []
    monkeypatch.setattr(
        loop,
        "policy_sequences",
        lambda t, *args, make=loop.policy_sequences: trained.append(t) or make(t, *args),
    )
    before = jax.tree.map(np.asarray, state.policy.params)
    metrics, _ = iterate(filtered, state, ignore)
    assert {fresh.index(t.task) for t in trained} == kept
    assert len(trained) == 2 * len(kept)
    if not kept:
        assert "policy/loss" not in metrics and same(before, state.policy.params)


def test_iterations_repeat_and_have_streams_of_their_own(setting: Setting, opened: tuple) -> None:
    def run(at: int):
        state = opened[1]()
        state.iteration = at
        metrics, batch = iterate(setting, state, ignore)
        timeless = {k: v for k, v in metrics.items() if not k.startswith("time/")}
        return timeless, [t.tokens for t in batch.trajectories], state

    first, again, later = run(0), run(0), run(1)
    assert first[:2] == again[:2]
    assert same(first[2].policy, again[2].policy) and same(first[2].judge, again[2].judge)
    assert first[2].tasks.to_json() == again[2].tasks.to_json()
    assert first[1] != later[1]
    seeds = {Streams.seed(run, stream, i) for run in range(3) for stream in range(5) for i in range(5)}
    assert len(seeds) == 75


def test_times_add_up(setting: Setting, state: State) -> None:
    metrics, _ = iterate(setting, state, ignore)
    parts = [metrics[f"time/{name}_s"] for name in ("rollout", "judge", "train", "adapt")]
    assert all(part >= 0 for part in parts)
    assert metrics["time/iteration_s"] == pytest.approx(sum(parts))
    assert 0 < metrics["time/env_s"] <= metrics["time/rollout_s"]


def test_a_gap_between_sampler_and_trainer_above_the_bound_stops_the_run(
    setting: Setting, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes(monkeypatch, lambda trajectory: trajectory.rollout == 0)
    strict = configured(setting, train_judge=False, adapt_tasks=False)
    strict.config.trainer.max_logprob_gap = 1e-12  # rounding is more
    with pytest.raises(ValueError, match=r"max_logprob_gap=1e-12.*float32"):
        iterate(strict, state, ignore)
