import dataclasses
import json
import pickle
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.alfworld import pddl
from rlanything_jax.envs.alfworld.domain import shipped
from rlanything_jax.envs.alfworld.game import Game, Object, Receptacle, find_games, load_game, number
from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.envs.alfworld.goal import make_goal, read_goal

KITCHEN = Game(
    receptacles=(
        Receptacle("sink_bar_2_bar_sinkbasin", "SinkBasin", "loc_bar_2"),
        Receptacle("cabinet_bar_1", "Cabinet", "loc_bar_1", openable=True),
        Receptacle("cabinet_bar_2", "Cabinet", "loc_bar_1", openable=True, opened=True),
    ),
    objects=(
        Object("mug_bar_1", "Mug", frozenset({"pickupable"}), ("cabinet_bar_1",), ("loc_bar_1",)),
        Object("sink_bar_2", "Sink", locations=("loc_bar_2",)),
    ),
    can_contain=frozenset({("Cabinet", "Mug"), ("SinkBasin", "Mug")}),
    start="loc_bar_0",
    goal=make_goal("pick_and_place_simple", "Mug", receptacle="SinkBasin"),
    instruction="put a mug in sinkbasin.",
)


def test_names_are_counted_from_the_last_id_and_basins_are_kinds_of_their_own() -> None:
    names = {thing.id: thing.name for thing in (*KITCHEN.receptacles, *KITCHEN.objects)}
    assert names == {
        "cabinet_bar_1": "cabinet 2",
        "cabinet_bar_2": "cabinet 1",
        "sink_bar_2_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_2": "sink 1",
        "mug_bar_1": "mug 1",
    }
    assert [receptacle.name for receptacle in KITCHEN.receptacles] == [
        "cabinet 2",
        "cabinet 1",
        "sinkbasin 1",
    ]


def test_ids_are_sorted_as_text_and_an_id_without_parts_has_no_number() -> None:
    assert number(["mug_bar_10", "mug_bar_9", "agent"]) == {
        "mug_bar_9": "mug 1",
        "mug_bar_10": "mug 2",
        "agent": "agent ",
    }


def test_a_changed_game_numbers_its_things_anew() -> None:
    more = (*KITCHEN.receptacles, Receptacle("cabinet_bar_3", "Cabinet", "loc_bar_3"))
    changed = dataclasses.replace(KITCHEN, receptacles=more)
    assert [receptacle.name for receptacle in changed.receptacles][:3] == [
        "cabinet 3",
        "cabinet 2",
        "cabinet 1",
    ]


def test_two_things_cannot_have_one_id() -> None:
    with pytest.raises(ValueError, match="cabinet_bar_1 is there twice"):
        dataclasses.replace(KITCHEN, receptacles=(*KITCHEN.receptacles, KITCHEN.receptacles[0]))


def test_a_saved_game_is_the_same_game(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    KITCHEN.save(path)
    loaded = load_game(path)
    assert loaded == KITCHEN
    assert loaded.path == str(path)
    assert set(json.loads(path.read_text())) == {
        "pddl_domain",
        "grammar",
        "pddl_problem",
        "solvable",
        "walkthrough",
    }


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0]))
def test_a_generated_game_is_the_same_game_when_read_back(seed: int, closed: float, shared: float) -> None:
    game = generate(seed, closed=closed, shared=shared)
    assert Game.from_json(json.loads(json.dumps(game.to_json()))) == game


def test_the_case_of_pddl_does_not_matter_but_for_the_types_that_are_shown() -> None:
    data = KITCHEN.to_json()
    data["pddl_problem"] = (
        data["pddl_problem"].replace("inReceptacle", "INRECEPTACLE").replace("_bar_", "_BAR_")
    )
    assert Game.from_json(data).objects == KITCHEN.objects
    assert Game.from_json(data).receptacles == KITCHEN.receptacles


def test_what_no_fact_mentions_is_declared_but_has_no_number() -> None:
    data = KITCHEN.to_json()
    data["pddl_problem"] = data["pddl_problem"].replace("(:objects", "(:objects mug_bar_0 - object")
    game = Game.from_json(data)
    assert [thing.name for thing in game.objects] == ["mug 1", "sink 1"]
    assert ("mug_bar_0", "object") in game.declared
    assert Game.from_json(game.to_json()) == game


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(:init", "(:init (", "1 '\\(' are never closed"),
        ("(:goal", ") (:goal", "one '\\)' too many"),
        ("(:init", "(:start", "section :init is missing"),
        (")\n(:init", "mug_bar_3 -)\n(:init", "no type follows the '-' after 'mug_bar_3'"),
        ("(atLocation agent1 loc_bar_0)", "", "one agent with an atLocation fact was expected, not 0"),
        (
            "(opened cabinet_bar_2)",
            "(broken cabinet_bar_2)",
            "broken cabinet_bar_2.* none that a game may start",
        ),
        ("(opened cabinet_bar_2)", "(opened cabinet_bar_9)", "'cabinet_bar_9' is not declared as receptacle"),
        ("(opened cabinet_bar_2)", "(opened mug_bar_1)", "'mug_bar_1' is not declared as receptacle"),
        ("(opened cabinet_bar_2)", "(opened)", "should have 1 arguments"),
        (
            "(receptacleAtLocation cabinet_bar_2 loc_bar_1)",
            "",
            "cabinet_bar_2 has 0 receptacleatlocation facts",
        ),
    ],
)
def test_a_malformed_problem_names_the_file_the_field_and_the_fault(old: str, new: str, message: str) -> None:
    data = KITCHEN.to_json()
    assert old in data["pddl_problem"]
    data["pddl_problem"] = data["pddl_problem"].replace(old, new)
    with pytest.raises(ValueError, match=f"^some.file: field 'pddl_problem': .*({message})"):
        Game.from_json(data, "some.file")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps(KITCHEN.to_json())[:5000])
    with pytest.raises(ValueError, match="game.tw-pddl: not a complete JSON file"):
        load_game(path)


def test_a_missing_field_is_named() -> None:
    data = KITCHEN.to_json()
    del data["pddl_problem"]
    with pytest.raises(ValueError, match="some.file: field 'pddl_problem' is missing"):
        Game.from_json(data, "some.file")
    with pytest.raises(ValueError, match="some.file: a game file holds a JSON object, not list"):
        Game.from_json([], "some.file")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="some.file: field 'walkthrough' is no list of commands: look"):
        Game.from_json({**KITCHEN.to_json(), "walkthrough": "look"}, "some.file")


def test_other_rules_are_refused_with_the_difference() -> None:
    data = KITCHEN.to_json()
    data["pddl_domain"] = data["pddl_domain"].replace("(not (holdsAny ?a))", "(not (full ?r))")
    with pytest.raises(
        ValueError, match=r"some.file: field 'pddl_domain': .*\( full \?r.*not.*\( holdsany \?a"
    ):
        Game.from_json(data, "some.file")


def test_other_texts_are_refused_with_the_difference() -> None:
    data = KITCHEN.to_json()
    data["grammar"] = data["grammar"].replace("You arrive at", "You reach")
    with pytest.raises(ValueError, match="some.file: field 'grammar': .*You reach.*not.*You arrive at"):
        Game.from_json(data, "some.file")


def test_the_texts_of_a_newer_alfworld_are_known() -> None:
    """Its domain lacks one alternative that no game meets, and its grammar wraps the same help in a rule."""
    data = KITCHEN.to_json()
    data["pddl_domain"] = data["pddl_domain"].replace(
        "(receptacleType ?r SinkType)", ";(receptacleType ?r SinkType)"
    )
    assert data["pddl_domain"] != shipped("alfred.pddl")
    plain = (
        shipped("alfred.twl2").partition("action help {")[2].partition('feedback :: "')[2].partition('"')[0]
    )
    rule = 'feedback :: "#help.feedback#";\n grammar :: """ {"help.feedback": [{"rhs": "%s"}]} """'
    data["grammar"] = data["grammar"].replace(f'feedback :: "{plain}"', rule % plain.replace("\n", "\\n"))
    assert rule % plain.replace("\n", "\\n") in data["grammar"]
    assert Game.from_json(data) == KITCHEN


def test_an_instruction_that_the_engine_would_not_print_is_not_written() -> None:
    with pytest.raises(ValueError, match="'put a mug in #sink#' has .*'#'.* markup"):
        dataclasses.replace(KITCHEN, instruction="put a mug in #sink#").to_json()
    data = KITCHEN.to_json()
    data["grammar"] = data["grammar"].replace("put a mug", "look; put a mug")
    with pytest.raises(ValueError, match="some.file: field 'grammar': .*'look; put a mug.*';'.* markup"):
        Game.from_json(data, "some.file")
    plain = dataclasses.replace(KITCHEN, instruction="put it in/on (café) 50%: 'now', please?")
    assert Game.from_json(plain.to_json()) == plain


def test_folders_without_games_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no file named game.tw-pddl anywhere under {tmp_path}"):
        find_games(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        find_games(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is a folder: pass one of its game files"):
        load_game(tmp_path)
    with pytest.raises(FileNotFoundError, match="game.tw-pddl"):
        load_game(tmp_path / "game.tw-pddl")


def test_a_game_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(KITCHEN)) == KITCHEN


def test_games_are_found_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b", "a/c", "a/b"):
        (tmp_path / name).mkdir(parents=True)
        KITCHEN.save(tmp_path / name / "game.tw-pddl")
    assert find_games(tmp_path) == [str(tmp_path / name / "game.tw-pddl") for name in ("a/b", "a/c", "b")]


@pytest.mark.parametrize(
    ("task_type", "place"),
    [
        ("pick_and_place_simple", {"receptacle": "Desk"}),
        ("look_at_obj_in_light", {"toggle": "DeskLamp"}),
        ("pick_clean_then_place_in_recep", {"receptacle": "Desk"}),
        ("pick_heat_then_place_in_recep", {"receptacle": "Desk"}),
        ("pick_cool_then_place_in_recep", {"receptacle": "Desk"}),
        ("pick_two_obj_and_place", {"receptacle": "Desk"}),
    ],
)
def test_the_six_goals_are_recognised(task_type: str, place: dict[str, str]) -> None:
    goal = make_goal(task_type, "Mug", **place)
    assert read_goal(goal.expression) == goal
    assert (goal.object, goal.receptacle, goal.toggle) == (
        "Mug",
        place.get("receptacle"),
        place.get("toggle"),
    )
    with pytest.raises(ValueError, match="takes an object and a"):
        make_goal(task_type, "Mug", receptacle="Desk", toggle="DeskLamp")


def test_a_goal_is_recognised_in_any_order_and_case_but_not_with_another_condition() -> None:
    text = "(AND (exists (?r - receptacle) (exists (?o - object) (and %s))))"
    placed = "(receptacleType ?r DeskType) (inreceptacle ?o ?r) (objectType ?o MugType)"
    (goal,) = pddl.read(text % placed)
    assert read_goal(goal)[:3] == ("pick_and_place_simple", "Mug", "Desk")
    (goal,) = pddl.read(text % f"(isSliced ?o) {placed}")
    assert read_goal(goal)[:4] == ("other", None, None, None)


def test_an_unknown_task_type_is_named() -> None:
    with pytest.raises(ValueError, match="task type 'stack' is unknown: use one of pick_and_place_simple"):
        make_goal("stack", "Mug", receptacle="Desk")


def test_released_games_are_read_as_their_folders_say(real_games: Path) -> None:
    paths = find_games(real_games)
    games = [load_game(path) for path in paths]
    assert len(games) == 36
    for path, game in zip(paths, games, strict=True):
        task_type, thing, _, place, _ = Path(path).parts[-3].split("-")
        assert (game.task_type, game.goal.object) == (task_type, thing)
        assert place in (game.goal.receptacle, game.goal.toggle)
        assert game.instruction.endswith(".")
        assert game.walkthrough
        assert Game.from_json(game.to_json()) == game


def test_released_games_are_read_in_20_ms_and_kept_in_280_kb(real_games: Path) -> None:
    """So that the 3553 games for training take less than 1 GB."""
    paths = find_games(real_games)
    load_game(paths[0])
    start = time.process_time()
    for path in paths:
        load_game(path)
    assert (time.process_time() - start) / len(paths) < 0.02
    tracemalloc.start()
    try:
        games = [load_game(path) for path in paths]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(games) < 100_000
