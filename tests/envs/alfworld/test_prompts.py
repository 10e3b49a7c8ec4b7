"""The words around the game: what is read ends where writing begins, and no word is unknown."""

import random
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from rlanything_jax.envs.alfworld.demonstrations import demonstrate, edit_towards
from rlanything_jax.envs.alfworld.edit import TaskEdit
from rlanything_jax.envs.alfworld.game import Game
from rlanything_jax.envs.alfworld.prompts import PHRASES, RATIONALES, render, rewrite_prompt
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.envs.base import Refused
from rlanything_jax.models.tokenizer import END, JUDGE, PAD, build_tokenizer
from rlanything_jax.reward.verdicts import format_verdict
from rlanything_jax.tasks.critique import summarise
from rlanything_jax.tasks.task import Task

GAMES = 50
KINDS = ({}, {"hint": True}, {"distractors": 2}, {"closed": 0.3, "varied": True})


@pytest.fixture(scope="module")
def world() -> AlfworldWorld:
    """All rooms and task types, larger than the demo's."""
    return AlfworldWorld(
        games={"train": 120, "valid_seen": 30, "valid_unseen": 30},
        knobs={"receptacles": 9, "objects": 8},
        kinds=KINDS,
        max_steps=20,
    )


@pytest.fixture(scope="module")
def tokenizer(world: AlfworldWorld) -> Tokenizer:
    return build_tokenizer(world.corpus(), world.phrases)


@pytest.fixture(scope="module")
def tasks(world: AlfworldWorld) -> list[Task]:
    return world.tasks("train")[:GAMES]


def unknown(tokenizer: Tokenizer, text: str) -> list[str]:
    """The pieces of `text` that the vocabulary does not have whole."""
    pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    known = tokenizer.get_vocab()
    return [piece for piece in pieces if piece not in known]


def edits(game: Game, rng: random.Random) -> Iterator[str]:
    """Edits of every kind."""
    for direction in ("easier", "harder"):
        if edit := edit_towards(game, direction, rng):
            yield edit
    place = rng.choice(game.receptacles)
    yield from (
        "hint on",
        "hint off",
        "remove distractors",
        f"object {rng.choice([o.type for o in game.objects]).lower()}",
        f"receptacle {place.type.lower()}",
        f"move target to {place.name}",
        f"add distractor in {place.name}",
        f"open {place.name}",
        f"close {place.name} ; hint on",
    )


def test_what_the_policy_reads_ends_with_the_reminder(world: AlfworldWorld, tasks: list[Task]) -> None:
    rng = random.Random(0)
    held = places = 0
    for task in tasks:
        for i, turn in enumerate(demonstrate(world.game(task), rng, max_steps=20, noise=0.2)):
            text = world.render(turn.observation, task, i == 0)
            info = turn.observation.info
            at, holding = info["at"] or "the middle", info["holding"] or "nothing"
            assert text.endswith(f"\nTask: {task.instruction} At {at} Holding {holding}.\n> ")
            assert text.count(task.instruction) == 1  # the engine's own "Your task is to" is left out
            assert "Welcome" not in text and "Your task is to" not in text
            assert text.startswith("You are in the middle of a room." if i == 0 else turn.observation.text)
            held += holding != "nothing"
            places += at != "the middle"
    assert held > 20 and places > 100


def test_every_word_of_an_episode_is_one_piece(
    world: AlfworldWorld, tokenizer: Tokenizer, tasks: list[Task]
) -> None:
    rng = random.Random(1)
    for task in tasks:
        for i, turn in enumerate(demonstrate(world.game(task), rng, max_steps=20, noise=0.3)):
            text = render(turn.observation, task, i == 0)
            assert unknown(tokenizer, text) == []
            assert unknown(tokenizer, turn.action) == []
            ids = tokenizer.encode(text + turn.action, add_special_tokens=False).ids
            assert tokenizer.decode(ids) == text + turn.action
            assert len(tokenizer.encode(turn.action, add_special_tokens=False).ids) <= 5
            for action in turn.observation.admissible:
                assert unknown(tokenizer, action) == []


def test_every_word_of_a_verdict_is_one_piece(tokenizer: Tokenizer) -> None:
    for rationale in RATIONALES.values():
        for score in (+1, -1):
            text = format_verdict(rationale, score)
            assert unknown(tokenizer, text) == []
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert len(ids) <= 9 and tokenizer.decode(ids) == text


def test_every_word_of_rewriting_is_one_piece(
    world: AlfworldWorld, tokenizer: Tokenizer, tasks: list[Task]
) -> None:
    """Prompts and edits, and what an edited game reads like."""
    rng = random.Random(2)
    applied = 0
    for task in tasks:
        game = world.game(task)
        for edit in edits(game, rng):
            assert unknown(tokenizer, edit) == []
            for direction in ("easier", "harder"):
                critique = summarise(rng.choices(list(RATIONALES.values()), k=3))
                prompt = rewrite_prompt(game, direction, critique)
                assert unknown(tokenizer, prompt) == []
                assert prompt.endswith(f"\nMake it {direction}\n> ")
            try:
                edited = TaskEdit.parse(edit).apply(game)
            except Refused:
                continue
            applied += 1
            assert unknown(tokenizer, edited.instruction) == []
            assert unknown(tokenizer, rewrite_prompt(edited, "harder", "nothing wrong")) == []
    assert applied > 3 * len(tasks)


def test_words_of_games_that_are_not_in_the_pool_are_known(
    world: AlfworldWorld, tokenizer: Tokenizer
) -> None:
    """A teacher shows games of its own; a rare name may be new, and then is spelt in bytes without loss."""
    teacher, rng, spelt = world.teacher(0.3), random.Random(3), 0
    for _ in range(GAMES):
        for turn in teacher.play(teacher.task(rng), rng):
            text = turn.prompt + turn.action
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert tokenizer.decode(ids) == text
            spelt += bool(unknown(tokenizer, text))
    assert spelt <= GAMES


def test_the_rewriter_reads_where_everything_is(world: AlfworldWorld, tasks: list[Task]) -> None:
    for task in tasks:
        game = world.game(task)
        prompt = world.rewrite_prompt(task, "easier", "was there before")
        room, said, critique, wish, cursor = prompt.split("\n")
        assert (said, critique) == (f"Task: {game.instruction}", "Critique: was there before")
        assert (wish, cursor) == ("Make it easier", "> ")
        places = dict(part.split(": ") for part in room.removeprefix("Room: ").split("; "))
        assert len(places) == len(game.receptacles)
        for receptacle in game.receptacles:
            shut = receptacle.openable and not receptacle.opened
            inside = [o.name for o in game.objects if o.receptacle == receptacle.id]
            assert places[f"{receptacle.name}{' is closed' if shut else ''}"] == (
                ", ".join(inside) or "nothing"
            )


def test_phrases_are_longest_match_pieces_without_special_names(tokenizer: Tokenizer) -> None:
    assert len(set(PHRASES)) == len(PHRASES)
    assert not {PAD, END, JUDGE} & set(PHRASES)
    for phrase in PHRASES:
        assert len(tokenizer.encode(phrase, add_special_tokens=False).ids) == 1
