import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.alfworld.edit import Change, TaskEdit, fingerprint
from rlanything_jax.envs.alfworld.env import AlfworldEnv
from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.envs.alfworld.simulator import Simulator
from rlanything_jax.envs.base import Refused

types = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
places = st.builds(lambda type, number: f"{type} {number}", types, st.integers(1, 99))
changes = st.one_of(
    st.builds(Change, st.just("hint"), st.sampled_from(["on", "off"])),
    st.builds(Change, st.sampled_from(["object", "receptacle"]), types),
    st.builds(Change, st.sampled_from(["move target to", "add distractor in", "open", "close"]), places),
    st.just(Change("remove distractors")),
)
edits = st.builds(TaskEdit, st.lists(changes, min_size=1, max_size=4).map(tuple))


@pytest.fixture
def game() -> Game:
    """A kitchen with two of what is asked for."""
    kitchen = {"room": "kitchen", "task_type": "pick_and_place_simple"}
    return generate(0, receptacles=16, objects=20, distractors=1, **kitchen)


def apply(text: str, game: Game, taken=()) -> Game:
    return TaskEdit.parse(text).apply(game, taken)


def wins(game: Game, commands) -> bool:
    simulator = Simulator(game)
    simulator.reset()
    for command in commands:
        simulator.step(command)
    return simulator.won


def place_of(game: Game, thing) -> str:
    return next(r.name for r in game.receptacles if r.id == thing.receptacle)


def targets(game: Game) -> list:
    return [o for o in game.objects if o.type == game.goal.object]


def other_type(game: Game) -> str:
    """A type that can be asked for in place of the game's own."""
    here = {r.type for r in game.receptacles if r.type != game.goal.receptacle}
    return next(
        o.type.lower()
        for o in game.objects
        if o.type != game.goal.object
        and (game.goal.receptacle, o.type) in game.can_contain
        and all(r.type in here for r in game.receptacles if r.id in o.receptacles)
        and not any(
            t.type == o.type
            and game.goal.receptacle in {r.type for r in game.receptacles if r.id in t.receptacles}
            for t in game.objects
        )
    )


# The language.


@given(edits)
def test_parse_and_str_are_inverses(edit):
    assert TaskEdit.parse(str(edit)) == edit


def test_case_and_spaces_do_not_matter():
    assert str(TaskEdit.parse("  Hint  ON;Move target   to Drawer 2 ")) == "hint on ; move target to drawer 2"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "hint",
            "hint maybe",
            "hinton",
            "object",
            "object mug 1",
            "object äpfel",
            "receptacle 3",
            "open",
        ),
        *("move target", "move target to drawer", "add distractor in shelf 0", "remove distractors 2"),
        *("close drawer two", "hint on ;", "burn drawer 1", "hint on, open drawer 1"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text):
    part = text.split(";")[-1].strip()
    with pytest.raises(Refused, match="cannot read") as error:
        TaskEdit.parse(text)
    assert repr(part) in str(error.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        edit = TaskEdit.parse(text)
    except Refused:
        return
    assert TaskEdit.parse(str(edit)) == edit


# What each change does.


def test_hint(game):
    hinted = apply("hint on", game)
    target = next(o for o in game.objects if f"take {o.name}" in " ".join(game.walkthrough))
    assert hinted.instruction == (
        f"{game.instruction} Hint: a {target.type.lower()} is in {place_of(game, target)}."
    )
    assert hinted.objects == game.objects and hinted.goal == game.goal
    assert fingerprint(apply("hint off", hinted)) == fingerprint(game)


def test_object_changes_goal_and_instruction(game):
    type = other_type(game)
    edited = apply(f"object {type}", game)
    assert edited.goal.object.lower() == type and edited.goal.receptacle == game.goal.receptacle
    assert edited.instruction == f"put a {type} in {game.goal.receptacle.lower()}."
    assert wins(edited, edited.walkthrough) and not wins(edited, game.walkthrough)


def test_receptacle_changes_goal_and_instruction(game):
    here = {r.type for r in game.receptacles if any(r.id in t.receptacles for t in targets(game))}
    type = next(
        r.type
        for r in game.receptacles
        if r.type not in {*here, game.goal.receptacle} and (r.type, game.goal.object) in game.can_contain
    )
    edited = apply(f"receptacle {type.lower()}", game)
    assert edited.goal.receptacle == type and edited.goal.object == game.goal.object
    assert edited.instruction == f"put a {game.goal.object.lower()} in {type.lower()}."
    assert wins(edited, edited.walkthrough) and not wins(edited, game.walkthrough)


def test_move_target(game):
    place = next(
        r.name
        for r in game.receptacles
        if r.type != game.goal.receptacle and r.id not in {t.receptacle for t in targets(game)}
    )
    edited = apply(f"remove distractors ; move target to {place} ; hint on", game)
    (target,) = targets(edited)
    assert place_of(edited, target) == place
    assert target.locations == (next(r.location for r in edited.receptacles if r.name == place),)
    assert edited.instruction.endswith(f"is in {place}.")
    assert wins(edited, edited.walkthrough)


def test_both_of_two_are_moved():
    game = generate(2, room="bedroom", task_type="pick_two_obj_and_place", receptacles=12, objects=10)
    place = next(r.name for r in game.receptacles if r.type not in (game.goal.receptacle,))
    edited = apply(f"move target to {place}", game)
    assert {place_of(edited, t) for t in targets(edited)} == {place}


def test_distractors_come_and_go(game):
    alone = apply("remove distractors", game)
    assert len(targets(alone)) == 1
    place = next(r.name for r in game.receptacles if r.type == "CounterTop")
    more = apply(f"add distractor in {place} ; add distractor in {place}", alone)
    assert [o.name.split()[1] for o in targets(more)] == ["3", "2", "1"]
    assert [place_of(more, o) for o in targets(more)[:2]] == [place, place]
    old = {o.id: o.name for o in alone.objects}
    assert {o.id: o.name for o in more.objects if o.id in old} == old  # nothing else is renamed
    assert more.goal == game.goal and more.instruction == game.instruction


def test_a_new_thing_never_takes_the_id_of_another(game):
    # Taking one away can leave a gap in the numbers of the ids, below which the new id must stay.
    place = next(r.name for r in game.receptacles if r.type == "CounterTop")
    kept, other = targets(game)
    for gone in (kept, other):
        gap = dataclasses.replace(game, objects=tuple(o for o in game.objects if o.id != gone.id))
        more = apply(f"add distractor in {place} ; add distractor in {place}", gap)
        assert len({o.id for o in more.objects}) == len(game.objects) + 1


@pytest.mark.parametrize("task_type", ["pick_two_obj_and_place", "look_at_obj_in_light"])
def test_removing_distractors_leaves_what_the_goal_needs(task_type):
    for seed in range(10):
        game = generate(seed, task_type=task_type, receptacles=12, distractors=2)
        edited = apply("remove distractors", game)
        assert len(targets(edited)) == (2 if task_type == "pick_two_obj_and_place" else 1)
        assert wins(edited, edited.walkthrough)
        assert len(edited.walkthrough) == len(game.walkthrough)


def test_doors(game):
    name = next(r.name for r in game.receptacles if r.openable)
    opened = apply(f"open {name}", game)
    assert [r.name for r in opened.receptacles if r.opened] == [name]
    assert fingerprint(apply(f"close {name}", opened)) == fingerprint(game)


def test_the_phrasing_is_kept():
    game = generate(3, room="kitchen", task_type="pick_heat_then_place_in_recep", receptacles=16, objects=20)
    varied = dataclasses.replace(
        game,
        instruction=f"heat some {game.goal.object.lower()} and put it in {game.goal.receptacle.lower()}.",
    )
    assert apply("hint on", varied).instruction.startswith(varied.instruction)
    foreign = dataclasses.replace(game, instruction="Warm it up!")
    assert apply("hint on", foreign).instruction.startswith(game.instruction)


# What is refused.


def test_an_edit_that_changes_nothing_is_refused(game):
    with pytest.raises(Refused, match="'hint off' changes nothing"):
        apply("hint off", game)
    name = next(r.name for r in game.receptacles if r.openable)
    with pytest.raises(Refused, match="changes nothing"):
        apply(f"open {name} ; close {name}", game)


def test_a_task_that_cannot_be_solved_is_refused(game):
    unfit = next(r.type for r in game.receptacles if (r.type, game.goal.object) not in game.can_contain)
    with pytest.raises(Refused, match="cannot be solved"):
        apply(f"receptacle {unfit.lower()}", game)


def test_two_of_what_there_is_only_one_are_refused():
    game = generate(2, room="bedroom", task_type="pick_two_obj_and_place", receptacles=12, objects=20)
    counts = [o.type for o in game.objects]
    single = next(t for t in counts if counts.count(t) == 1)
    with pytest.raises(Refused, match="cannot be solved"):
        apply(f"object {single.lower()}", game)


def test_a_task_that_is_solved_before_it_begins_is_refused(game):
    place = next(r.name for r in game.receptacles if r.type == game.goal.receptacle)
    with pytest.raises(Refused, match="solved before it begins"):
        apply(f"move target to {place}", game)
    with pytest.raises(Refused, match="solved before it begins"):
        apply(f"add distractor in {place}", game)


def test_a_task_of_the_pool_is_refused(game):
    taken = {fingerprint(apply("hint on", game))}
    with pytest.raises(Refused, match="already in the pool"):
        apply("hint on", game, taken)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("object unicorn", "there is no unicorn"),
        ("receptacle throne", "there is no throne"),
        ("move target to drawer 99", "there is no drawer 99"),
        ("open countertop 1", "countertop 1 has no door"),
    ],
)
def test_what_is_not_there_is_refused_by_name(game, text, reason):
    with pytest.raises(Refused, match=reason) as error:
        apply(text, game)
    assert repr(text) in str(error.value)


def test_no_receptacle_where_none_is_asked_for():
    with pytest.raises(Refused, match="does not end in a receptacle"):
        apply("receptacle desk", generate(0, task_type="look_at_obj_in_light"))


def test_a_goal_of_no_known_form_is_refused(game):
    strange = dataclasses.replace(game, goal=game.goal._replace(task_type="other", object=None))
    with pytest.raises(Refused, match="none of the six"):
        apply("hint on", strange)


# All of it, on any game.


def random_edit(rng: random.Random, game: Game) -> str:
    place = rng.choice(game.receptacles).name
    thing = rng.choice([o.type for o in game.objects if "pickupable" in o.properties]).lower()
    kinds = [
        "hint on", "hint off", f"object {thing}", f"receptacle {place.split()[0]}", f"move target to {place}",
        f"add distractor in {place}", "remove distractors", f"close {place}", f"open {place}",
    ]  # fmt: skip
    return " ; ".join(rng.sample(kinds, rng.choice([1, 1, 2, 3])))


def check_any_edit(game: Game, rng: random.Random) -> bool:
    """Whether a random edit was accepted, in which case everything must hold of it."""
    try:
        edited = apply(random_edit(rng, game), game)
    except Refused:
        return False
    environment = AlfworldEnv(edited)
    first = environment.reset()
    assert first.text.endswith(f"Your task is to: {edited.instruction}") and not first.won
    assert edited.goal.object.lower() in edited.instruction
    assert (edited.goal.receptacle or "").lower() in edited.instruction
    # Written out and read again it is the same game: ids and names agree with how the engine numbers them.
    assert fingerprint(Game.from_json(edited.to_json())) == fingerprint(edited)
    assert fingerprint(edited) != fingerprint(game)
    assert wins(edited, edited.walkthrough)
    return True


@given(seed=st.integers(0, 10**9))
@settings(max_examples=100, deadline=None)
def test_edits_of_generated_games(seed):
    game = generate(seed, receptacles=12, objects=14, distractors=seed % 3, hint=seed % 2 == 0)
    check_any_edit(game, random.Random(seed))


def test_edits_of_released_games(real_games):
    rng = random.Random(0)
    accepted = [check_any_edit(load_game(path), rng) for path in find_games(real_games) for _ in range(4)]
    assert sum(accepted) > 20


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # the engine's own
def test_the_engine_agrees(tmp_path, real_games):
    pytest.importorskip("textworld", reason="needs the alfworld extra")
    pytest.importorskip("alfworld", reason="needs the alfworld extra")
    from rlanything_jax.envs.alfworld.conformance import engine

    kitchen = generate(0, room="kitchen", task_type="pick_and_place_simple", receptacles=12, objects=12)
    released = load_game(next(path for path in find_games(real_games) if "pick_cool" in path))
    for i, (game, change) in enumerate([(kitchen, other_type(kitchen)), (released, other_type(released))]):
        place = next(r.name for r in game.receptacles if r.type == "CounterTop")
        edited = apply(f"object {change} ; add distractor in {place} ; hint on", game)
        path = str(tmp_path / f"{i}.tw-pddl")
        edited.save(path)
        play = engine(path)
        simulator = Simulator(edited)
        answer = play(None)
        assert answer.text == simulator.reset()
        assert edited.instruction in answer.text
        for command in edited.walkthrough:
            assert not answer.won
            answer = play(command)
            assert answer.text == simulator.step(command)
            assert answer.admissible == simulator.admissible
        assert answer.won
        play(None)
        assert not any([play(command).won for command in game.walkthrough])
