import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle, find_games, load_game, make_goal
from rlanything_jax.envs.alfworld.generate import generate, new_id, new_object
from rlanything_jax.envs.alfworld.knowledge import Expert, StepLabeller
from rlanything_jax.envs.alfworld.rooms import CAN_CONTAIN, OPENABLE
from rlanything_jax.envs.alfworld.simulator import Simulator


def room(
    places: list[str], things: dict[str, str], goal: tuple[str, str, str], hint: str = "", shared: str = ""
) -> Game:
    """A small game: receptacles by name, thing -> receptacle, and (task type, object, receptacle or lamp)."""
    receptacles = {}
    for i, name in enumerate(places):
        type, number = name.split()
        location = "loc_bar_shared" if name in shared.split(", ") else f"loc_bar_{i + 1}"
        receptacles[name] = Receptacle(new_id(type, int(number)), type, location, type in OPENABLE)
    objects: list[Object] = [new_object(*_split(t), receptacles[place]) for t, place in things.items()]
    types = {o.type for o in objects}
    task_type, object, end = goal
    role = "toggle" if task_type == "look_at_obj_in_light" else "receptacle"
    return Game(
        receptacles=tuple(receptacles.values()),
        objects=tuple(objects),
        can_contain=frozenset((r.type, t) for r in receptacles.values() for t in types & CAN_CONTAIN[r.type]),
        start="loc_bar_0",
        goal=make_goal(task_type, object, **{role: end}),
        instruction=f"put it there.{hint}",
    )


def _split(name: str) -> tuple[str, int]:
    type, number = name.split()
    return type, int(number)


PLACES = ["Cabinet 1", "CounterTop 1", "Drawer 1", "Drawer 2", "GarbageCan 1", "Safe 1"]
SPOON = ("pick_and_place_simple", "Spoon", "CounterTop")


def labels(game: Game, steps: list[str]) -> list[int]:
    environment = AlfworldEnv(game, labels=True)
    environment.reset()
    return [environment.step(step).info["label"] for step in steps]


def check(game: Game, steps: list[tuple[str, int]]) -> None:
    commands = [command for command, _ in steps]
    assert list(zip(commands, labels(game, commands), strict=True)) == steps


def test_labels_of_a_search():
    game = room(PLACES, {"Spoon 1": "Drawer 1", "Mug 1": "CounterTop 1"}, SPOON)
    check(
        game,
        [
            ("look", -1),
            ("dance", -1),
            ("go to drawer 2", 1),  # the spoon might be here
            ("examine drawer 2", -1),  # closed, as was seen
            ("open drawer 2", 1),
            ("open drawer 2", -1),  # nothing happens
            ("close drawer 2", -1),
            ("go to safe 1", -1),  # no place for a spoon
            ("go to countertop 1", -1),  # it cannot be where it would have won
            ("take mug 1 from countertop 1", -1),  # in the way
            ("go to drawer 2", -1),  # searched already, and no place for a mug
            ("go to countertop 1", 1),
            ("move mug 1 to countertop 1", 1),  # undoes the taking
            ("go to drawer 1", 1),
            ("open drawer 1", 1),
            ("take spoon 1 from drawer 1", 1),
            ("move spoon 1 to drawer 1", -1),
            ("take spoon 1 from drawer 1", 1),
            ("go to drawer 2", -1),
            ("go to countertop 1", 1),
            ("move spoon 1 to countertop 1", 1),
        ],
    )


def test_nothing_is_searched_once_it_was_found():
    game = room(PLACES, {"Spoon 1": "Drawer 1"}, SPOON)
    check(game, [("go to drawer 1", 1), ("open drawer 1", 1), ("go to drawer 2", -1), ("go to drawer 1", 1)])


def test_unlikely_places_are_worth_a_look_when_the_likely_ones_are_searched():
    game = room(PLACES, {"Spoon 1": "Safe 1"}, SPOON)
    check(
        game,
        [
            ("go to garbagecan 1", -1),
            ("go to drawer 1", 1),
            ("open drawer 1", 1),
            ("go to drawer 2", 1),
            ("open drawer 2", 1),
            ("go to cabinet 1", 1),
            ("open cabinet 1", 1),
            ("go to garbagecan 1", -1),  # seen into before
            ("go to safe 1", 1),
        ],
    )


def test_a_hint_makes_searching_useless():
    game = room(PLACES, {"Spoon 1": "Drawer 2"}, SPOON, hint=" Hint: a spoon is in drawer 2.")
    check(game, [("go to drawer 1", -1), ("go to drawer 2", 1), ("open drawer 2", 1)])


def test_examining_reveals_what_stands_at_the_same_place():
    game = room(PLACES, {"Spoon 1": "Safe 1"}, SPOON, shared="Drawer 1, Drawer 2")
    check(
        game,
        [
            ("go to drawer 1", 1),
            ("go to drawer 2", -1),
            ("examine drawer 2", 1),
            ("open drawer 2", 1),
            ("look", -1),
        ],
    )


def test_the_second_of_two_is_still_searched_after_the_first_was_found():
    goal = ("pick_two_obj_and_place", "Spoon", "CounterTop")
    game = room(PLACES, {"Spoon 1": "Drawer 1", "Spoon 2": "Drawer 2"}, goal)
    check(
        game,
        [
            ("go to drawer 1", 1),
            ("open drawer 1", 1),
            ("go to drawer 2", 1),
            ("open drawer 2", 1),
            ("take spoon 2 from drawer 2", 1),
            ("go to countertop 1", 1),
            ("move spoon 2 to countertop 1", 1),
            ("go to drawer 2", -1),
            ("go to drawer 1", 1),
        ],
    )


def test_a_lamp_is_searched_where_it_can_stand():
    goal = ("look_at_obj_in_light", "Book", "DeskLamp")
    places = ["Desk 1", "Drawer 1", "SideTable 1", "Shelf 1"]
    game = room(places, {"Book 1": "Shelf 1", "DeskLamp 1": "Desk 1"}, goal)
    check(
        game,
        [
            ("go to shelf 1", 1),
            ("take book 1 from shelf 1", 1),
            ("go to drawer 1", -1),
            ("go to sidetable 1", 1),
            ("go to desk 1", 1),
            ("use desklamp 1", 1),
        ],
    )


def play(game: Game, expert_of, noise: float = 0.0, seed: int = 0, limit: int = 400) -> list[str]:
    """Commands until the game is won; a share `noise` of them is random."""
    rng = random.Random(seed)
    simulator = Simulator(game)
    simulator.reset()
    expert = expert_of(game, simulator.facts)
    commands = []
    while not simulator.won:
        assert len(commands) < limit, commands[-10:]
        command = expert.act()
        assert command in simulator.admissible or "open" in command  # it may not know what is open already
        if rng.random() < noise:
            command = rng.choice(simulator.admissible)
        simulator.step(command)
        expert.observe(command, simulator.facts)
        commands.append(command)
    return commands


@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([(6, 5), (9, 8), (25, 40)]),
    distractors=st.integers(0, 2),
    closed=st.sampled_from([0, 0.5, 1]),
    shared=st.sampled_from([0, 0.5]),
    unlikely=st.booleans(),
    informed=st.booleans(),
    noise=st.sampled_from([0, 0.3]),
)
@settings(max_examples=150, deadline=None)
def test_the_expert_wins_every_game_whatever_is_done_in_between(seed, size, informed, noise, **knobs):
    try:
        game = generate(seed, receptacles=size[0], objects=size[1], **knobs)
    except ValueError:
        return  # no unlikely place in so small a room
    commands = play(game, lambda *a: Expert(*a, informed=informed), noise, seed)
    assert commands == play(game, lambda *a: Expert(*a, informed=informed), noise, seed)


def test_the_expert_searches_in_the_order_of_the_room_and_where_the_target_fits():
    game = room(PLACES, {"Spoon 1": "Drawer 1"}, SPOON)
    plain = play(game, lambda *a: Expert(*a, informed=False))
    informed = play(game, Expert)
    order = [r.name for r in game.receptacles]
    visits = [command.removeprefix("go to ") for command in plain if command.startswith("go")]
    assert visits[:-1] == order[: order.index("drawer 1") + 1]
    end = ["take spoon 1 from drawer 1", "go to countertop 1", "move spoon 1 to countertop 1"]
    assert informed == ["go to drawer 2", "open drawer 2", "go to drawer 1", "open drawer 1", *end]


def test_the_expert_goes_straight_where_a_hint_says():
    for seed in range(20):
        game = generate(seed, hint=True, receptacles=12, task_type="pick_and_place_simple")
        assert len(play(game, Expert)) == len(game.walkthrough)


def test_the_expert_knows_no_more_than_it_saw():
    # Two rooms that differ in what was not looked at yet get the same commands.
    first = room(PLACES, {"Spoon 1": "Drawer 1"}, SPOON)
    second = room(PLACES, {"Spoon 1": "Cabinet 1"}, SPOON)
    assert play(first, Expert)[:4] == play(second, Expert)[:4]


def test_the_expert_wins_released_games(real_games):
    lengths = []
    for path in find_games(real_games):
        lengths.append(len(play(load_game(path), Expert)))
    assert sum(length <= 50 for length in lengths) >= 0.85 * len(lengths)


def test_an_informed_expert_is_labelled_helpful_and_a_random_one_not():
    helpful = {"expert": [], "random": []}
    for seed in range(40):
        game = generate(seed, receptacles=12, objects=12)
        for player in helpful:
            rng = random.Random(seed)
            simulator = Simulator(game)
            simulator.reset()
            labeller = StepLabeller(game, simulator.facts)
            expert = Expert(game, simulator.facts)
            for _ in range(30):
                if not simulator.won:
                    command = expert.act() if player == "expert" else rng.choice(simulator.admissible)
                    simulator.step(command)
                    expert.observe(command, simulator.facts)
                    helpful[player].append(labeller.label(command, simulator.facts))
    assert sum(label == 1 for label in helpful["expert"]) > 0.98 * len(helpful["expert"])
    assert sum(label == 1 for label in helpful["random"]) < 0.4 * len(helpful["random"])


def test_labels_are_given_only_where_asked_for():
    game = generate(0)
    environment = AlfworldEnv(game)
    assert "label" not in environment.reset().info
    assert "label" not in environment.step("look").info


def test_a_goal_of_no_known_form_cannot_be_labelled():
    game = generate(0)
    strange = dataclasses.replace(game, goal=game.goal._replace(task_type="other", object=None))
    with pytest.raises(ValueError, match="none of the six"):
        AlfworldEnv(strange, labels=True).reset()
