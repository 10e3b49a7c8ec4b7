"""Demonstrations: they solve, they err as often as they are told to, and they speak as the judge should."""

import random

import pytest

from rlanything_jax.envs.alfworld.demonstrations import demonstrate, edit_towards, explain
from rlanything_jax.envs.alfworld.edit import TaskEdit
from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.instruction import has_hint
from rlanything_jax.envs.alfworld.prompts import RATIONALES
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.tasks.critique import NO_CRITIQUE


@pytest.fixture(scope="module")
def world() -> AlfworldWorld:
    return AlfworldWorld(
        games={"train": 40, "valid_seen": 0, "valid_unseen": 0},
        knobs={"receptacles": 8, "objects": 7},
        kinds=({}, {"hint": True, "closed": 0.5}, {"distractors": 1}),
        max_steps=30,
    )


@pytest.fixture(scope="module")
def games(world: AlfworldWorld) -> list[Game]:
    return [world.game(task) for task in world.tasks("train")]


def test_an_undisturbed_expert_solves_every_game(games: list[Game]) -> None:
    for game in games:
        turns = demonstrate(game, random.Random(0), max_steps=60, noise=0.0)
        assert not any(turn.disturbed for turn in turns)
        env = AlfworldEnv(game, 60)
        observation = env.reset()
        for turn in turns:
            assert turn.observation == observation and turn.action in observation.admissible
            observation = env.step(turn.action)
        assert observation.won


def test_a_disturbed_expert_errs_as_often_as_told_and_mostly_recovers(games: list[Game]) -> None:
    played = [demonstrate(game, random.Random(i), max_steps=60, noise=0.25) for i, game in enumerate(games)]
    turns = [turn for episode in played for turn in episode]
    assert 0.2 < sum(turn.disturbed for turn in turns) / len(turns) < 0.3
    wrong = [turn for turn in turns if turn.action not in turn.observation.admissible]
    assert wrong and all(turn.disturbed for turn in wrong)
    assert sum(len(episode) < 60 for episode in played) > 0.8 * len(games)
    assert all(len(episode) <= 60 for episode in played)
    again = demonstrate(games[3], random.Random(3), max_steps=60, noise=0.25)
    assert again == played[3]
    cut = demonstrate(games[3], random.Random(3), max_steps=2, noise=0.25)
    assert cut == played[3][:2]


@pytest.mark.parametrize(
    ("actions", "admissible", "verdict", "name"),
    [
        (["go to fridge 1"], True, +1, "search"),
        (["open fridge 1"], True, +1, "search"),
        (["examine shelf 1"], True, +1, "search"),
        (["take mug 1 from shelf 1"], True, +1, "progress"),
        (["move mug 1 to shelf 1"], True, +1, "progress"),
        (["open mug 1"], False, -1, "nothing"),
        (["go to fridge 1", "go to fridge 1"], False, -1, "nothing"),
        (["go to fridge 1", "look", "go to fridge 1"], True, -1, "again"),
        (["close fridge 1"], True, -1, "away"),
        (["go to fridge 1"], True, -1, "away"),
    ],
)
def test_a_verdict_is_explained_by_what_was_seen(
    world: AlfworldWorld, actions: list[str], admissible: bool, verdict: int, name: str
) -> None:
    assert explain(actions, admissible, verdict) == RATIONALES[name]
    assert world.teacher(0.0).explain(actions, admissible, verdict) == RATIONALES[name]


@pytest.mark.parametrize("direction", ["easier", "harder"])
def test_edits_can_be_made_and_are_of_many_kinds(games: list[Game], direction: str) -> None:
    rng = random.Random(0)
    verbs = set()
    drawn = [(game, edit) for game in games if (edit := edit_towards(game, direction, rng))]
    assert len(drawn) > 0.8 * len(games)
    for game, edit in drawn:
        (change,) = TaskEdit.parse(edit).changes
        edited = TaskEdit.parse(edit).apply(game)
        assert edited != game
        verbs.add(f"{change.verb} {change.argument}" if change.verb == "hint" else change.verb)
        if change.verb == "hint":
            assert has_hint(edited.instruction) == (direction == "easier") != has_hint(game.instruction)
        if change.verb == "move target to":
            place = next(r for r in game.receptacles if r.name == change.argument)
            shut = place.openable and not place.opened
            assert shut == (direction == "harder")
    expected = {
        "easier": {"hint on", "open", "move target to", "remove distractors"},
        "harder": {"hint off", "close", "move target to", "object"},
    }[direction]
    assert verbs <= expected and len(verbs) >= 3


def test_a_teacher_shows_tasks_that_the_run_does_not_have(world: AlfworldWorld) -> None:
    teacher, rng = world.teacher(0.0), random.Random(0)
    shown = [teacher.task(rng) for _ in range(20)]
    pool = {world.fingerprint(task) for task in world.tasks("train")}
    assert len({world.fingerprint(task) for task in shown} - pool) == 20
    assert all(task.world == "alfworld" and task.parent is None for task in shown)
    for task in shown[:5]:
        turns = teacher.play(task, rng)
        env = world.environment(task)
        observation = env.reset()
        for i, turn in enumerate(turns):
            assert turn.prompt == world.render(observation, task, i == 0)
            observation = env.step(turn.action)
        assert observation.won or len(turns) == world.max_steps


@pytest.mark.parametrize("direction", ["easier", "harder"])
def test_a_teacher_rewrites_tasks_from_critiques(world: AlfworldWorld, direction: str) -> None:
    teacher, rng = world.teacher(0.25), random.Random(0)
    critiques = set()
    examples = [(task, teacher.rewrite(task, direction, rng)) for task in world.tasks("train")]
    shown = [(task, *example) for task, example in examples if example]
    assert len(shown) > 0.8 * len(examples)
    for task, prompt, edit in shown:
        critique = prompt.partition("\nCritique: ")[2].partition("\n")[0]
        critiques.add(critique)
        assert prompt == world.rewrite_prompt(task, direction, critique)
        assert world.rewrite(task, edit, {world.fingerprint(task)}).parent == task.id
    said = {part for critique in critiques for part in critique.split("; ")}
    assert said == {NO_CRITIQUE, *(RATIONALES[name] for name in ("nothing", "again", "away"))}


def test_stored_games_are_what_a_teacher_of_stored_games_shows(real_games) -> None:
    world = AlfworldWorld(data=str(real_games), max_steps=20)
    teacher, rng = world.teacher(0.2), random.Random(0)
    stored = world.tasks("train")
    task = teacher.task(rng)
    assert task in stored
    assert teacher.play(task, rng)
    prompt, edit = teacher.rewrite(task, "easier", rng)
    assert world.rewrite(task, edit, ()).parent == task.id and task.instruction in prompt
