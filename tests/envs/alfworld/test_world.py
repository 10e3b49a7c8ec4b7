import dataclasses
import json
import pickle
import shutil
from collections import Counter

import pytest

from rlanything_jax.envs.alfworld.game import load_game
from rlanything_jax.envs.alfworld.generate import SPLITS
from rlanything_jax.envs.alfworld.knowledge import Expert
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.envs.base import Refused
from rlanything_jax.tasks.task import Task

HEAT = {"room": "kitchen", "task_type": "pick_heat_then_place_in_recep"}
LOOK = {"room": "bedroom", "task_type": "look_at_obj_in_light"}


@pytest.fixture
def world() -> AlfworldWorld:
    games = {"train": 12, "valid_seen": 4, "valid_unseen": 4}
    return AlfworldWorld(games=games, knobs={"receptacles": 9, "objects": 7}, labels=True, max_steps=20)


def test_tasks_are_fixed_and_split(world):
    tasks = {split: world.tasks(split) for split in SPLITS}
    assert {split: len(found) for split, found in tasks.items()} == world.games
    assert tasks["train"] == world.tasks("train")
    everything = [task for found in tasks.values() for task in found]
    assert len({task.id for task in everything}) == len({world.fingerprint(t) for t in everything}) == 20
    assert all(
        task.world == "alfworld" and task.generation == 0 and task.parent is None for task in everything
    )


def test_seeds_give_other_games(world):
    other = dataclasses.replace(world, seed=1)
    assert not {world.fingerprint(t) for t in world.tasks("train")} & {
        other.fingerprint(t) for t in other.tasks("train")
    }


def test_a_task_survives_json_and_needs_nothing_else(world):
    for task in world.tasks("train"):
        again = Task.from_json(json.loads(json.dumps(task.to_json())))
        assert AlfworldWorld().game(again) == world.game(task)


def test_the_instruction_is_what_the_environment_says(world):
    for task in world.tasks("valid_unseen"):
        first = world.environment(task).reset()
        assert first.text.endswith(f"Your task is to: {task.instruction}")


def test_environments_are_as_configured(world):
    environment = world.environment(world.tasks("train")[0])
    environment.reset()
    observations = [environment.step("look") for _ in range(20)]
    assert [o.done for o in observations] == [False] * 19 + [True]
    assert observations[0].info["label"] == -1


def test_kinds_are_drawn_by_weight():
    kinds = [{**HEAT, "weight": 3, "hint": True}, LOOK]
    world = AlfworldWorld(games={"train": 200}, kinds=kinds, knobs={"objects": 3})
    tasks = world.tasks("train")
    count = Counter(world.game(task).task_type for task in tasks)
    assert set(count) == {HEAT["task_type"], LOOK["task_type"]}
    assert 120 < count[HEAT["task_type"]] < 180
    assert all(("Hint:" in t.instruction) == ("hot" in t.instruction) for t in tasks)


def test_a_world_is_pickled_small_and_works_elsewhere(world):
    task = world.tasks("train")[3]
    copy = pickle.loads(pickle.dumps(world))
    assert copy == world and len(pickle.dumps(world)) < 2000
    assert copy.fingerprint(task) == world.fingerprint(task)


def test_every_task_can_be_won(world):
    for task in world.tasks("train"):
        environment = world.environment(task)
        environment.reset()
        commands = world.game(task).walkthrough
        assert [environment.step(command).won for command in commands] == [False] * (len(commands) - 1) + [
            True
        ]


# Rewriting.


def test_a_rewrite_is_a_task_with_lineage(world):
    task = world.tasks("train")[0]
    child = world.rewrite(task, "Hint on", ())
    assert child.parent == task.id and child.generation == 1 and child.world == "alfworld"
    assert child.spec == {**task.spec, "edits": ["hint on"]}
    assert child.instruction.startswith(task.instruction + " Hint: a ")
    assert child.instruction == world.game(child).instruction
    assert world.fingerprint(child) != world.fingerprint(task)
    grandchild = world.rewrite(child, "hint off ; add distractor in " + far(world, task), ())
    assert grandchild.parent == child.id and grandchild.generation == 2
    assert len(grandchild.spec["edits"]) == 2
    assert len({task.id, child.id, grandchild.id}) == 3
    assert grandchild.id.startswith(task.id)
    again = Task.from_json(json.loads(json.dumps(grandchild.to_json())))
    assert AlfworldWorld().game(again) == world.game(grandchild)


def far(world: AlfworldWorld, task: Task) -> str:
    game = world.game(task)
    return next(r.name for r in game.receptacles if r.type != game.goal.receptacle)


def test_two_ways_to_the_same_game_are_one(world):
    task = world.tasks("train")[0]
    place = next(r.name for r in world.game(task).receptacles if r.openable)
    first = world.rewrite(world.rewrite(task, "hint on", ()), f"open {place}", ())
    second = world.rewrite(task, f"open {place} ; hint on", ())
    assert world.fingerprint(first) == world.fingerprint(second)
    assert first.id == second.id


@pytest.mark.parametrize("edit", ["make it hard", "hint off", "open bathtub 9"])
def test_a_rewrite_that_makes_no_task_is_refused(world, edit):
    with pytest.raises(Refused):
        world.rewrite(world.tasks("train")[0], edit, ())


def test_a_rewrite_that_is_in_the_pool_is_refused(world):
    task = world.tasks("train")[0]
    taken = {world.fingerprint(world.rewrite(task, "hint on", ()))}
    with pytest.raises(Refused, match="already in the pool"):
        world.rewrite(task, "hint on", taken)


# Released games.


def test_released_games_are_tasks_by_their_path(real_games):
    world = AlfworldWorld(data=str(real_games))
    for split in SPLITS:
        tasks = world.tasks(split)
        assert len(tasks) == 12
        for task in tasks:
            assert task.id == task.spec["game"].removesuffix("/game.tw-pddl")
            assert task.id.startswith(f"{split}/")
            assert task.instruction == world.game(task).instruction
            assert world.game(task).walkthrough == load_game(real_games / task.spec["game"]).walkthrough
    child = world.rewrite(tasks[0], "hint on", ())
    environment = world.environment(child)
    assert environment.reset().text.endswith(child.instruction)


def test_the_expert_plays_in_a_released_world(real_games):
    world = AlfworldWorld(data=str(real_games), labels=True)
    environment = world.environment(world.tasks("valid_seen")[0])
    environment.reset()
    expert = Expert(environment.game, environment.facts)
    label = environment.step(expert.act()).info["label"]
    assert label == 1


def test_a_moved_folder_changes_no_task(real_games, tmp_path):
    shutil.copytree(real_games / "valid_seen", tmp_path / "valid_seen")
    there = AlfworldWorld(data=str(tmp_path))
    assert there.tasks("valid_seen") == AlfworldWorld(data=str(real_games)).tasks("valid_seen")


# Errors.


def test_a_folder_without_games_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        AlfworldWorld(data=str(tmp_path)).tasks("train")
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="no file named game.tw-pddl"):
        AlfworldWorld(data=str(tmp_path)).tasks("train")


def test_an_unknown_split_is_named(world):
    with pytest.raises(ValueError, match="unknown split 'test'"):
        world.tasks("test")


def test_a_stored_task_needs_its_folder(world):
    with pytest.raises(ValueError, match="as `data`"):
        world.game(Task("x", "alfworld", "", {"game": "train/x/game.tw-pddl"}))
