"""What chat models read and write in the household world."""

import pytest

from rlanything_jax.envs.alfworld import chat
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.envs.base import Observation, Refused

OBSERVATION = Observation("You see a mug.", ("go to desk 1", "take mug 1 from desk 1"), 0.0, False, False)


@pytest.fixture(scope="module")
def world() -> AlfworldWorld:
    return AlfworldWorld(games={"train": 2}, knobs={"room": "kitchen"}, style="chat")


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("I take it. \\boxed{1}", "take mug 1 from desk 1"),
        ("\\boxed{ 0 }", "go to desk 1"),
        ("First \\boxed{0}, no: \\boxed{1}", "take mug 1 from desk 1"),  # the last box counts
        ("\\boxed{take mug 1 from desk 1}", "take mug 1 from desk 1"),
        ("\\boxed{2}", "2"),  # out of range: not clamped to an action that nobody chose
        ("\\boxed{-1}", "-1"),
        ("\\boxed{\u0663}", "\u0663"),  # a digit, but of no number in the list
        ("I take the mug.", ""),
        ("", ""),
    ],
)
def test_a_response_means_the_action_in_its_last_box(response: str, action: str) -> None:
    assert chat.action(response, OBSERVATION) == action


def test_an_action_that_means_nothing_does_nothing_and_is_inadmissible(world: AlfworldWorld) -> None:
    (task, _) = world.tasks("train")
    environment = world.environment(task)
    before = environment.reset()
    after = environment.step(world.action("I have no idea.", before))
    assert after.text == "Nothing happens." and not after.info["admissible"]


def test_the_policy_reads_what_happened_its_task_and_all_its_actions(world: AlfworldWorld) -> None:
    (task, _) = world.tasks("train")
    observation = world.environment(task).reset()
    text = world.render(observation, task, True)
    assert text.startswith("You are in the middle of a room.") and "TextWorld" not in text
    assert text.count(f"Your task: {task.instruction}") == 1
    *numbered, ask = text.partition("Actions:\n")[2].splitlines()
    assert "\\boxed{number}" in ask
    assert numbered == [f"{i}: {action}" for i, action in enumerate(observation.admissible)]
    assert [world.action(f"\\boxed{{{i}}}", observation) for i in range(len(numbered))] == list(
        observation.admissible
    )


def test_the_rewriter_is_told_the_language_of_edits_and_answers_in_a_box(world: AlfworldWorld) -> None:
    (task, _) = world.tasks("train")
    prompt = world.rewrite_prompt(task, "easier", "x" * 5000)
    assert task.instruction in prompt and "Make it easier." in prompt
    assert len(prompt) < 4000  # a long critique is cut, not the task
    assert world.edit("It hides. \\boxed{hint on}") == "hint on"
    assert world.rewrite(task, world.edit("\\boxed{hint on}"), ()).instruction != task.instruction
    with pytest.raises(Refused, match="cannot read"):
        world.rewrite(task, world.edit("I do not know."), ())


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(ValueError, match="style='prose'.*words, chat"):
        AlfworldWorld(style="prose")
