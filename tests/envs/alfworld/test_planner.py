import dataclasses
import random
import time
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.envs.alfworld.goal import make_goal
from rlanything_jax.envs.alfworld.planner import Planner, solve
from rlanything_jax.envs.alfworld.rooms import ROOMS, WORK
from rlanything_jax.envs.alfworld.simulator import Simulator

KINDS = [(room, task_type) for room in ROOMS for task_type in ROOMS[room].task_types]
HEAT = "pick_heat_then_place_in_recep"
INFINITY = float("inf")


def snapshot(simulator: Simulator) -> tuple:
    contents = {place: list(things) for place, things in simulator._contents.items()}
    return frozenset(simulator.facts), contents, simulator._location, simulator._held, simulator.won


def restore(simulator: Simulator, state: tuple) -> None:
    facts, contents, simulator._location, simulator._held, simulator.won = state
    simulator._facts = set(facts)
    simulator._contents = {place: list(things) for place, things in contents.items()}
    simulator._left = set()
    simulator._find_commands()


def distances(game: Game, most: int = 4500) -> dict[frozenset, float] | None:
    """The true distance of every state in reach, by a search backwards; None where they are too many."""
    simulator = Simulator(game)
    simulator.reset()
    # What says nothing, and what is done to things without need, leads away from no goal and to none.
    idle = {"examine", "look", "help", "inventory", "slice", "clean", "heat", "cool"}
    idle -= {WORK[game.task_type][0]} if game.task_type in WORK else set()
    start = snapshot(simulator)
    states, before, queue = {start[0]: start}, {start[0]: []}, deque([start[0]])
    while queue:
        here = queue.popleft()
        restore(simulator, states[here])
        for command in simulator.admissible:
            if command.split()[0] not in idle:
                restore(simulator, states[here])
                simulator.step(command)
                there = frozenset(simulator.facts)
                if there not in states:
                    if len(states) == most:
                        return None
                    states[there], before[there] = snapshot(simulator), []
                    queue.append(there)
                before[there].append(here)
    found: dict[frozenset, float] = {facts: 0.0 for facts, state in states.items() if state[-1]}
    queue = deque(found)
    while queue:
        here = queue.popleft()
        for there in before[here]:
            if there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return {facts: found.get(facts, INFINITY) for facts in states}


def in_two_places(game: Game, rng: random.Random) -> Game:
    """`game` with a thing in a second receptacle too, as in released games what lies in a pan is."""
    places = [r.id for r in game.receptacles]
    first, *others = game.objects
    first = dataclasses.replace(first, receptacles=tuple(sorted({*first.receptacles, rng.choice(places)})))
    return dataclasses.replace(game, objects=(first, *others))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("room", "task_type"), KINDS)
def test_distances_are_those_of_an_exhaustive_search(room, task_type, double):
    rng = random.Random(f"{room} {task_type} {double}")
    checked = 0
    for _ in range(20):
        game = generate(
            rng.randrange(10**6),
            room=room,
            task_type=task_type,
            receptacles=4 if room == "kitchen" else rng.choice((4, 5)),
            objects=2 if room == "kitchen" else rng.choice((2, 3)),
            distractors=0 if room == "kitchen" else rng.choice((0, 1)),
            closed=rng.choice((0, 0.5, 1)),
            shared=rng.choice((0, 0.4, 0.8)),
        )
        if double:
            game = in_two_places(game, rng)
        found = distances(game)
        if found is None:
            continue
        planner = Planner(game)
        for facts, distance in found.items():
            assert planner.distance(facts) == distance, (sorted(facts), planner.game.goal)
        checked += len(found)
        if checked > 400:
            break
    assert checked > 60


@given(seed=st.integers(0, 10**9), walk=st.lists(st.integers(0, 10**9), max_size=25), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_plan_wins_in_as_many_commands_as_the_distance_and_each_brings_it_one_nearer(seed, walk, data):
    game = generate(seed, receptacles=12, objects=15, distractors=seed % 3, shared=0.2)
    simulator = Simulator(game)
    simulator.reset()
    planner = Planner(game)
    for number in walk:
        if not simulator.won:
            simulator.step(simulator.admissible[number % len(simulator.admissible)])
    plan = planner.plan(simulator.facts)
    for left in range(len(plan), 0, -1):
        assert planner.distance(simulator.facts) == left
        command = plan[len(plan) - left]
        assert command in simulator.admissible
        simulator.step(command)
    assert simulator.won and planner.distance(simulator.facts) == 0


@given(seed=st.integers(0, 10**9), number=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_no_command_brings_a_game_nearer_by_more_than_one(seed, number):
    game = generate(seed, receptacles=12, objects=15)
    simulator = Simulator(game)
    simulator.reset()
    planner = Planner(game)
    rng = random.Random(number)
    before = planner.distance(simulator.facts)
    while not simulator.won and rng.random() < 0.95:
        simulator.step(rng.choice(simulator.admissible))
        after = planner.distance(simulator.facts)
        assert after >= before - 1
        before = after


def hand_made(*commands: str) -> tuple[Planner, Simulator]:
    """A kitchen in which an egg in the fridge is to be heated and put on the counter, after some commands."""
    game = generate(0, room="kitchen", task_type=HEAT, receptacles=6, objects=1)
    kinds = {r.type: r for r in game.receptacles}
    egg = dataclasses.replace(game.objects[0], receptacles=(kinds["Fridge"].id,))
    goal = make_goal(HEAT, egg.type, receptacle="CounterTop")
    fits = game.can_contain | {("CounterTop", egg.type), ("Fridge", egg.type)}
    game = dataclasses.replace(game, objects=(egg,), goal=goal, can_contain=fits)
    simulator = Simulator(game)
    simulator.reset()
    for command in commands:
        assert command in simulator.admissible, command
        simulator.step(command)
    return Planner(game), simulator


def test_a_plan_counted_by_hand():
    planner, simulator = hand_made()
    thing = planner.game.objects[0].name
    assert planner.plan(simulator.facts) == [
        "go to fridge 1",
        "open fridge 1",
        f"take {thing} from fridge 1",
        "go to microwave 1",
        f"heat {thing} with microwave 1",
        "go to countertop 1",
        f"move {thing} to countertop 1",
    ]
    assert planner.distance(simulator.facts) == 7


def test_going_astray_costs_what_it_takes_to_return():
    _, simulator = hand_made()
    thing = simulator.game.objects[0].name
    steps = [
        ("go to fridge 1", 6),
        ("open fridge 1", 5),
        ("close fridge 1", 6),
        ("open fridge 1", 5),
        (f"take {thing} from fridge 1", 4),
        ("go to countertop 1", 4),  # from here as far to the microwave as before
        (f"move {thing} to countertop 1", 5),
        (f"take {thing} from countertop 1", 4),
        ("go to microwave 1", 3),
        (f"heat {thing} with microwave 1", 2),
        ("go to fridge 1", 2),
    ]
    planner = Planner(simulator.game)
    for command, left in steps:
        simulator.step(command)
        assert planner.distance(simulator.facts) == left, command


def test_a_game_without_a_way_is_infinitely_far():
    planner, simulator = hand_made()
    nowhere = dataclasses.replace(planner.game, can_contain=frozenset())
    assert Planner(nowhere).distance(simulator.facts) == INFINITY
    with pytest.raises(ValueError, match="cannot be solved"):
        solve(nowhere)


def test_a_goal_of_no_known_form_is_refused():
    game = generate(0)
    with pytest.raises(ValueError, match="none of the six"):
        Planner(dataclasses.replace(game, goal=game.goal._replace(task_type="other", object=None)))


def test_released_games_are_solved_at_least_as_fast_as_by_their_walkthroughs(real_games):
    paths = find_games(real_games)
    assert len(paths) == 36
    for path in paths:
        game = load_game(path)
        simulator = Simulator(game)
        simulator.reset()
        plan = solve(game)
        for command in plan:
            assert command in simulator.admissible
            simulator.step(command)
        assert simulator.won and len(plan) <= len(game.walkthrough), path


def test_a_call_is_fast():
    game = generate(
        1, room="kitchen", task_type="pick_two_obj_and_place", receptacles=25, objects=40, distractors=1
    )
    simulator = Simulator(game)
    simulator.reset()
    planner = Planner(game)
    rng = random.Random(0)
    times = []
    for _ in range(300):
        simulator.step(rng.choice(simulator.admissible))
        start = time.perf_counter()
        planner.distance(simulator.facts)
        times.append(time.perf_counter() - start)
    assert sorted(times)[len(times) // 2] < 500e-6  # several times what an idle core takes
