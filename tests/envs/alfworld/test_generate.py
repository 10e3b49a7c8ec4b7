import dataclasses
import itertools
import json
import subprocess
import sys
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.generate import LAYOUTS, SPLITS, Knobs, furnish, generate, is_unseen, new_id
from rlanything_jax.envs.alfworld.rooms import AFFORDANCES, CAN_CONTAIN, OPENABLE, ROOMS, TASK_TYPES
from rlanything_jax.envs.alfworld.simulator import Simulator

KINDS = [(room, task_type) for room in ROOMS for task_type in ROOMS[room].task_types]
knobs = st.fixed_dictionaries(
    {
        "split": st.sampled_from(SPLITS),
        "receptacles": st.integers(7, 30),
        "objects": st.integers(1, 50),
        "distractors": st.integers(0, 3),
        "closed": st.floats(0, 1),
        "hint": st.booleans(),
        "varied": st.booleans(),
        "shared": st.floats(0, 1),
    }
)


def targets(game: Game) -> list:
    return [o for o in game.objects if o.type == game.goal.object]


def wins(game: Game, commands: list[str]) -> bool:
    simulator = Simulator(game)
    simulator.reset()
    assert not simulator.won
    for command in commands:
        assert command in simulator.admissible
        simulator.step(command)
    return simulator.won


@pytest.mark.parametrize(("room", "task_type"), KINDS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9), knobs=knobs)
def test_every_game_is_won_by_its_walkthrough(room, task_type, seed, knobs):
    game = generate(seed, room=room, task_type=task_type, **knobs)
    assert game.task_type == task_type
    assert wins(game, game.walkthrough)


@given(seed=st.integers(0, 10**9), knobs=knobs)
@settings(max_examples=30, deadline=None)
def test_a_game_survives_its_file(seed, knobs):
    game = generate(seed, **knobs)
    read = Game.from_json(json.loads(json.dumps(game.to_json())))
    assert dataclasses.replace(read, declared=()) == game


def test_equal_arguments_give_equal_games_in_another_process():
    code = (
        "from rlanything_jax.envs.alfworld.generate import generate; import json;"
        "print(json.dumps([generate(i, objects=20, varied=True, closed=0.5).to_json() for i in range(3)]))"
    )
    environment = {"PYTHONHASHSEED": "7", "PATH": ""}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    here = [generate(i, objects=20, varied=True, closed=0.5).to_json() for i in range(3)]
    assert json.loads(process.stdout) == here


def test_seeds_and_splits_give_different_games():
    games = {json.dumps(generate(seed, split=split).to_json()) for seed in range(40) for split in SPLITS}
    assert len(games) == 120


def goal_pairs(split: str) -> set[tuple[str, str]]:
    games = [
        generate(seed, split=split, room=room, task_type=task_type, receptacles=12, objects=3)
        for room, task_type in KINDS
        for seed in range(25)
    ]
    return {(g.goal.object, g.goal.receptacle or g.goal.toggle) for g in games}


def test_unseen_goals_never_occur_in_training():
    train, seen, unseen = (goal_pairs(split) for split in SPLITS)
    assert not train & unseen and not seen & unseen
    assert not any(is_unseen(*pair) for pair in train | seen)
    assert all(is_unseen(*pair) for pair in unseen)
    assert len(train) > 100 and len(unseen) > 20


def test_unseen_layouts_never_occur_in_training():
    def layouts(split):
        return {
            tuple(
                (r.id, r.location)
                for r in generate(seed, split=split, room="kitchen", receptacles=25).receptacles
            )
            for seed in range(150)
        }

    train, seen, unseen = (layouts(split) for split in SPLITS)
    assert train == seen and len(train) <= LAYOUTS * 4 // 5
    assert not train & unseen and 1 < len(unseen) <= LAYOUTS // 5


def test_furniture_does_not_depend_on_the_seed_and_keeps_to_its_limits():
    for room, layout in itertools.product(ROOMS, range(LAYOUTS)):
        assert furnish(room, layout, 20) == furnish(room, layout, 20)
        count = Counter(r.type for r in furnish(room, layout, 50))
        assert set(ROOMS[room].core) <= set(count)
        for type, number in count.items():
            assert number <= ROOMS[room].core.count(type) + ROOMS[room].more.get(type, (0, 0))[1]


@pytest.mark.parametrize("count", [6, 10, 25])
def test_counts_are_as_asked(count):
    game = generate(3, room="kitchen", receptacles=count, objects=count + 15)
    assert len(game.receptacles) == count
    assert len(game.objects) == count + 15
    assert len({r.location for r in game.receptacles}) == count
    assert game.start not in {r.location for r in game.receptacles}


def test_shared_locations():
    game = generate(3, room="kitchen", receptacles=10, shared=1.0)
    assert len({r.location for r in game.receptacles}) == 1


@pytest.mark.parametrize(("closed", "share"), [(1.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_share_of_closed_containers(closed, share):
    game = generate(5, room="kitchen", receptacles=25, closed=closed)
    containers = [r for r in game.receptacles if r.openable]
    assert {r.type for r in containers} <= OPENABLE
    assert abs(sum(not r.opened for r in containers) - share * len(containers)) <= 0.5
    assert not any(r.opened for r in game.receptacles if not r.openable)


@pytest.mark.parametrize(("room", "task_type"), KINDS)
def test_distractors_are_of_the_targets_type(room, task_type):
    for seed in range(5):
        game = generate(seed, room=room, task_type=task_type, receptacles=12, distractors=2, objects=12)
        assert len(targets(game)) == 2 + (2 if task_type == "pick_two_obj_and_place" else 1)
        assert len(game.objects) == 12


@pytest.mark.parametrize("unlikely", [True, False])
def test_an_unlikely_place_is_one_where_the_target_does_not_belong(unlikely):
    for seed in range(30):
        game = generate(seed, receptacles=15, unlikely=unlikely)
        type_of = {r.id: r.type for r in game.receptacles}
        for target in targets(game):
            assert (target.type not in CAN_CONTAIN[type_of[target.receptacle]]) == unlikely


def test_properties_are_those_of_the_type():
    for seed in range(20):
        for thing in generate(seed, objects=30).objects:
            assert ("pickupable" in thing.properties) == (thing.type != "DeskLamp")
            assert ("heatable" in thing.properties) == (thing.type in AFFORDANCES["heatable"])


def test_a_hint_names_the_place_of_every_target():
    for seed in range(30):
        game = generate(seed, hint=True, distractors=1, receptacles=12)
        plain, hint = game.instruction.split(" Hint: ")
        assert plain == generate(seed, distractors=1, receptacles=12).instruction
        names = {r.id: r.name for r in game.receptacles}
        said = hint.rstrip(".").split(", ")
        assert len(said) == (2 if game.task_type == "pick_two_obj_and_place" else 1)
        assert set(said) <= {f"a {t.type.lower()} is in {names[t.receptacle]}" for t in targets(game)}


def test_phrasing_is_fixed_unless_varied():
    def stems(varied):
        games = [
            generate(i, room="kitchen", task_type="pick_heat_then_place_in_recep", varied=varied)
            for i in range(20)
        ]
        return {g.instruction.split()[0] for g in games}

    assert stems(False) == {"put"}
    assert stems(True) == {"put", "heat"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"room": "attic"}, "unknown room 'attic'"),
        ({"task_type": "juggle"}, "unknown task type 'juggle'"),
        ({"room": "bedroom", "task_type": "pick_heat_then_place_in_recep"}, "a bedroom offers no pick_heat"),
        ({"split": "test"}, "unknown split 'test'"),
        ({"task_type": "pick_heat_then_place_in_recep", "receptacles": 1}, "allow more receptacles"),
    ],
)
def test_errors_name_the_value(settings, message):
    with pytest.raises(ValueError, match=message):
        generate(0, **settings)


def test_knobs_reject_unknown_names():
    with pytest.raises(TypeError):
        Knobs(size=3)


@pytest.mark.parametrize(
    ("type", "number", "id"), [("Mug", 1, "mug_bar_999"), ("SinkBasin", 2, "sink_bar_998_bar_sinkbasin")]
)
def test_ids(type, number, id):
    assert new_id(type, number) == id


def test_every_task_type_is_offered():
    assert {task_type for _, task_type in KINDS} == set(TASK_TYPES)


def test_generation_is_fast():
    start = time.perf_counter()
    for seed in range(50):
        generate(seed, receptacles=25, objects=40)
    assert (time.perf_counter() - start) / 50 < 0.02  # a few times what it takes on an idle core
