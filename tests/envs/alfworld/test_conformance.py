import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything_jax.envs.alfworld import conformance, recording
from rlanything_jax.envs.alfworld.game import Game, find_games, load_game
from rlanything_jax.envs.alfworld.generate import generate
from rlanything_jax.envs.alfworld.rooms import ROOMS, TASK_TYPES
from rlanything_jax.envs.alfworld.transcript import (
    Answer,
    Player,
    difference_of,
    engine,
    simulated,
    transcript,
)

GOLDEN = Path(__file__).parent / "golden" / "engine.jsonl"
ROWS = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def replay(row: dict) -> None:
    """Plays a recorded game; AssertionError at the first command that is answered otherwise."""
    game, steps = recording.recorded(row)
    play = simulated(game)
    for count, (command, expected) in enumerate(steps):
        difference = difference_of(expected, play(command))
        assert difference is None, f"step {count}, {command!r}: {difference}"


@pytest.mark.parametrize("row", ROWS, ids=[str(row["generate"]["seed"]) for row in ROWS])
def test_the_simulator_answers_as_the_engine_did(row: dict) -> None:
    replay(row)


def test_the_recorded_games_are_of_every_kind_and_their_commands_too() -> None:
    assert [{key: row[key] for key in row if key not in ("sha256", "steps")} for row in ROWS] == (
        recording.specifications()
    ), "the specifications have changed: record again"
    assert {row["generate"]["room"] for row in ROWS} == set(ROOMS)
    assert {row["generate"].get("task_type") for row in ROWS} >= set(TASK_TYPES)
    verbs = {
        command.split()[0] for row in ROWS for command, *_ in row["steps"] if command and command.strip()
    }
    assert verbs >= set(
        "go open close take move use heat cool clean slice examine look inventory help".split()
    )
    assert sum(row["steps"][-1][2] for row in ROWS) >= len(TASK_TYPES)
    assert GOLDEN.stat().st_size < 400_000


def test_a_recorded_answer_that_differs_is_found() -> None:
    row = json.loads(json.dumps(ROWS[0]))
    row["steps"][3][1] += " Something else."
    with pytest.raises(AssertionError, match="step 3, .*Something else"):
        replay(row)


def test_a_generator_that_makes_another_game_is_told_from_a_wrong_answer() -> None:
    with pytest.raises(ValueError, match="makes another game than was recorded: record again"):
        recording.recorded({**ROWS[0], "sha256": "0"})


def test_the_first_difference_is_in_words() -> None:
    answer = Answer("You look.", ("a", "b"), False)
    assert difference_of(answer, answer) is None
    assert (
        difference_of(answer, answer._replace(text="No."))
        == "the engine says 'You look.', the simulator 'No.'"
    )
    assert (
        difference_of(answer, answer._replace(admissible=("b", "c")))
        == "the simulator lacks ['a'] and adds ['c']"
    )
    assert difference_of(answer, answer._replace(won=True)) == "the engine says won=False, the simulator True"


def test_a_transcript_repeats_for_its_seed() -> None:
    game = generate(5)
    one, two = (list(transcript(game, simulated(game), random.Random(4))) for _ in range(2))
    assert one == two
    assert [command for command, _ in one].count(None) == 2
    assert len(one) == 62 + len(game.walkthrough)
    assert one[-1][1].won


def standing_in(change: Callable[[Answer], Answer]) -> Callable[[str], Player]:
    """The simulator in the engine's place, with its answers changed."""

    def start(path: str) -> Player:
        play = simulated(load_game(path))
        return lambda command: change(play(command))

    return start


@pytest.fixture
def games(tmp_path: Path) -> Path:
    for split in ("train", "valid_seen"):
        for seed in range(3):
            folder = tmp_path / split / str(seed)
            folder.mkdir(parents=True)
            generate(seed, split=split).save(folder / "game.tw-pddl")
    return tmp_path


def test_equal_play_is_reported_and_exits_with_0(
    games: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conformance, "engine", standing_in(lambda answer: answer))
    assert conformance.main([str(games), "--games", "4", "--json", str(games / "result.json")]) == 0
    output = capsys.readouterr()
    assert "4/4 games, 0 different" in output.err
    assert output.out.splitlines()[-2].split()[:2] == ["all", "4"]
    result = json.loads((games / "result.json").read_text())
    assert (result["games"], result["different"]) == (4, {})
    assert sum(row["commands"] for row in result["by_task_type"].values()) == sum(result["commands"].values())


def test_the_first_difference_of_a_game_is_shown_and_exits_with_1(
    games: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = standing_in(lambda answer: answer._replace(text=answer.text.replace("Welcome", "Hello")))
    monkeypatch.setattr(conformance, "engine", changed)
    assert conformance.main([str(games), "--games", "1"]) == 1
    output = capsys.readouterr().out
    assert f"DIFFERENT {games}" in output
    assert "after None: the engine says '-= Hello" in output


def test_games_are_drawn_from_every_split_alike(games: Path) -> None:
    paths = conformance.sample(find_games(games), str(games), 4, seed=0)
    assert [Path(path).parts[-3] for path in paths] == ["train", "valid_seen", "train", "valid_seen"]
    assert len({*paths}) == 4
    assert conformance.sample(find_games(games), str(games), 4, seed=0) == paths


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either DATA or --record FILE"),
        (["here", "--record", "there"], "give either DATA or --record FILE"),
        (["nowhere"], "nowhere is not a folder"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        conformance.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_the_engine_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(ImportError, match=r"pip install 'rlanything-jax\[alfworld\]'"):
        engine("some.file")


@pytest.mark.filterwarnings("ignore")  # of the engine's own dependencies
@pytest.mark.parametrize(
    "specification", recording.specifications()[::9], ids=lambda row: str(row["generate"]["seed"])
)
def test_the_engine_still_answers_as_recorded(specification: dict, tmp_path: Path) -> None:
    pytest.importorskip("alfworld", reason="the TextWorld engine is not installed: the alfworld extra has it")
    game: Game = recording.make(specification)
    path = tmp_path / "game.tw-pddl"
    game.save(path)
    played, difference = conformance.compare(game, engine(str(path)), random.Random(1))
    assert difference is None
    assert played.total() == 62 + len(game.walkthrough)
