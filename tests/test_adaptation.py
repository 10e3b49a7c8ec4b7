"""Tasks follow the policy: direction, critique, refusal, proposal, verification."""

import dataclasses
import random
from collections.abc import Sequence

import pytest
from ml_collections import ConfigDict

from rlanything_jax import adaptation
from rlanything_jax.adaptation import adapt
from rlanything_jax.dialogue import Speaker, WordDialogue
from rlanything_jax.envs.alfworld.demonstrations import edit_towards
from rlanything_jax.envs.alfworld.edit import fingerprint
from rlanything_jax.envs.alfworld.planner import solve
from rlanything_jax.envs.alfworld.simulator import Simulator
from rlanything_jax.envs.alfworld.world import AlfworldWorld
from rlanything_jax.models.config import ModelConfig
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.reward.judge import JudgeConfig, Vote
from rlanything_jax.reward.step_judge import StepJudge
from rlanything_jax.reward.verdicts import format_verdict
from rlanything_jax.rollouts import Step, Trajectory
from rlanything_jax.sampler.generate import Response
from rlanything_jax.tasks import Task, TaskPool

N = 4
DIALOGUE = WordDialogue(build_tokenizer(["put a mug"], []))
REWRITER = Speaker({}, ModelConfig(300, 8, 1, 1, 1, 8, 8), DIALOGUE)
CRITIQUE = StepJudge(JudgeConfig(), "outcome", 1.0, "centred", -2.0, "sequence", 2).critique
EVENT = {
    "event",
    "iteration",
    "task",
    "parent",
    "generation",
    "direction",
    "instruction",
    "parent_instruction",
    "critique",
    "edit",
    "accuracy_before",
    "accuracy_after",
    "reason",
}


class Desk:
    """A pool with a scripted rewriter: `texts` for each prompt, or what `write(prompt)` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = AlfworldWorld(
            games={"train": 6}, knobs={"receptacles": 8, "objects": 7, "room": "kitchen"}, max_steps=20
        )
        self.originals = self.world.tasks("train")
        self.pool = TaskPool(self.originals, seed=0, original_share=0.5, fingerprint=self.world.fingerprint)
        self.config = ConfigDict(
            {
                "source": "critique",
                "low": 0.25,
                "high": 0.75,
                "max_pending": 2,
                "attempts": 3,
                "temperature": 1.0,
                "max_tokens": 8,
                "length_buckets": (128,),
            }
        )
        self.texts: Sequence[str] = ()
        self.prompts: list[str] = []
        self.iteration = 0
        monkeypatch.setattr(adaptation, "generate", self._generate)

    def _generate(self, rewriter, prompts, samples, **limits) -> list[list[Response]]:
        assert samples == self.config.attempts
        self.prompts = list(prompts)
        return [[Response(text, True, [], []) for text in self.texts] for _ in prompts]

    def adapt(
        self,
        wins: dict[Task, int],
        *texts: str,
        votes: Sequence[tuple[str, int]] = (("does not help", -1),),
        lost: int = 0,
    ) -> dict[str, int]:
        """One iteration in which each task is won so often, after the `lost` episodes of it that do not count."""
        self.texts = texts
        tasks = [*wins]
        trajectories = [
            Trajectory(
                task,
                j,
                0,
                DIALOGUE,
                steps=[Step("", "look", "look", 0, 0, 1)],
                won=j < lost or j - lost < wins[task],
                error="fault" if j < lost else None,
            )
            for task in tasks
            for j in range(N)
        ]
        cast = [[[Vote(format_verdict(text, score), score, text, [], []) for text, score in votes]]] * len(
            trajectories
        )
        counts = adapt(
            REWRITER, self.world, CRITIQUE, self.pool, tasks, trajectories, cast, self.config,
            iteration=self.iteration, seed=0,
        )  # fmt: skip
        self.iteration += 1
        return counts

    def last(self) -> dict:
        return self.pool.events()[-1]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


@pytest.mark.parametrize(
    ("wins", "direction"), [(0, "easier"), (1, None), (2, None), (3, None), (4, "harder")]
)
def test_thresholds_decide_whether_and_where_a_task_moves(
    desk: Desk, wins: int, direction: str | None
) -> None:
    task = desk.originals[0]
    counts = desk.adapt({task: wins}, "hint on")
    if direction is None:
        assert counts == {"proposed": 0, "refused": 0, "accepted": 0, "accepted_total": 0}
        assert desk.prompts == [] and not desk.pool.events()
        return
    assert counts == {"proposed": 1, "refused": 0, "accepted": 0, "accepted_total": 0}
    assert desk.prompts == [desk.world.rewrite_prompt(task, direction, "does not help")]
    (event,) = desk.pool.events()
    (child,) = desk.pool.pending()
    assert child == desk.world.rewrite(task, "hint on", ())
    assert event == {
        "event": "proposed",
        "iteration": 0,
        "task": child.id,
        "parent": task.id,
        "generation": 1,
        "direction": direction,
        "instruction": child.instruction,
        "parent_instruction": task.instruction,
        "critique": "does not help",
        "edit": "hint on",
        "accuracy_before": wins / N,
        "accuracy_after": None,
        "reason": "",
    }


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("make it nicer", "cannot read"),
        ("", "cannot read"),
        ("object spaceship", "there is no spaceship"),
        ("hint off", "changes nothing"),
        ("close garden 1", "there is no garden 1"),
    ],
)
def test_an_edit_that_makes_no_task_is_refused_with_its_reason(desk: Desk, edit: str, reason: str) -> None:
    task = desk.originals[0]
    counts = desk.adapt({task: 0}, edit)
    assert counts == {"proposed": 0, "refused": 1, "accepted": 0, "accepted_total": 0}
    event = desk.last()
    assert event["event"] == "refused" and event["task"] is None and event["edit"] == edit
    assert reason in event["reason"] and event["parent"] == task.id
    assert event["instruction"] == event["parent_instruction"] == task.instruction
    assert not desk.pool.pending()


def test_a_task_that_is_solved_at_reset_or_cannot_be_solved_is_refused(desk: Desk) -> None:
    seen = set()
    desk.config.max_pending = len(desk.originals)
    for task in desk.originals:
        game = desk.world.game(task)
        goal = next(r.name for r in game.receptacles if r.type == game.goal.receptacle)
        desk.adapt({task: 0}, f"move target to {goal}")
        if desk.last()["event"] == "refused":
            seen.add(desk.last()["reason"].partition("makes a task that ")[2])
    assert "is solved before it begins" in seen


def test_a_task_whose_prompt_the_rewriter_cannot_read_is_refused(desk: Desk) -> None:
    counts = desk.adapt({desk.originals[0]: 0})
    assert counts["refused"] == 1 and counts["proposed"] == 0
    assert desk.last()["event"] == "refused" and "adapt.length_buckets" in desk.last()["reason"]


def test_attempts_are_tried_until_one_is_a_task(desk: Desk) -> None:
    task = desk.originals[0]
    counts = desk.adapt({task: 0}, "nonsense", "nonsense", "hint on", "hint off")
    assert [event["event"] for event in desk.pool.events()] == ["refused", "proposed"]
    assert counts["refused"] == 1 and counts["proposed"] == 1
    # It is pending now, and no second time.
    desk.adapt({task: 0}, "hint on")
    assert desk.last()["event"] == "refused" and "already in the pool" in desk.last()["reason"]


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        (0, 1, "accepted"),
        (0, 2, "accepted"),
        (0, 0, "rejected"),  # no easier
        (0, 3, "rejected"),  # too easy now: acc' must stay below `high`
        (0, 4, "rejected"),
        (4, 3, "accepted"),
        (4, 2, "accepted"),
        (4, 4, "rejected"),  # no harder
        (4, 1, "rejected"),  # too hard now
        (4, 0, "rejected"),
    ],
)
def test_the_next_iteration_accepts_or_rejects_by_what_it_measures(
    desk: Desk, before: int, after: int, event: str
) -> None:
    task = desk.originals[0]
    desk.adapt({task: before}, "hint on")
    (child,) = desk.pool.pending()
    counts = desk.adapt({desk.originals[1]: 2, child: after}, "object apple")
    assert not desk.pool.pending()
    found = desk.last()
    assert (found["event"], found["task"], found["iteration"]) == (event, child.id, 1)
    assert (found["accuracy_before"], found["accuracy_after"]) == (before / N, after / N)
    assert found["reason"] and found["critique"] == "does not help" and found["edit"] == "hint on"
    assert desk.pool.accepted() == ([child] if event == "accepted" else [])
    assert counts["accepted"] == counts["accepted_total"] == (event == "accepted")
    assert desk.prompts == []  # a task that has just been verified is not rewritten at once


def test_an_accepted_task_is_rewritten_in_turn(desk: Desk) -> None:
    task = desk.originals[0]
    desk.adapt({task: 0}, "hint on")
    (child,) = desk.pool.pending()
    desk.adapt({child: 2})
    opened = next(r.name for r in desk.world.game(child).receptacles if r.openable)
    desk.adapt({child: 4}, f"open {opened}")
    (grandchild,) = desk.pool.pending()
    assert (grandchild.parent, grandchild.generation) == (child.id, 2)
    assert [t.id for t in desk.pool.lineage(grandchild.id)] == [task.id, child.id, grandchild.id]
    # The way back to an ancestor is barred while that is in the pool.
    desk.adapt({child: 4}, "hint off")
    assert desk.last()["event"] == "refused" and "already in the pool" in desk.last()["reason"]


VOTES = [
    ("looks in a new place", 1),
    ("does not help", -1),
    ("does not help", -1),
    ("was there before", -1),
    ("", 0),
]


def test_critiques_come_from_votes_that_said_minus_one(desk: Desk) -> None:
    task, other = desk.originals[:2]
    desk.adapt({task: 0, other: 4}, "nonsense", votes=VOTES)
    assert {event["critique"] for event in desk.pool.events()} == {"does not help; was there before"}
    desk.adapt({task: 0}, "nonsense", votes=[("brings the goal closer", 1)])
    assert desk.last()["critique"] == "nothing wrong"


def test_hard_tasks_are_criticised_for_their_failures_easy_ones_for_all(desk: Desk) -> None:
    task = desk.originals[0]
    desk.config.update(low=0.5, high=0.75)

    def critique(wins: int, complaints: dict[bool, str]) -> str:
        trajectories = [
            Trajectory(task, j, 0, DIALOGUE, steps=[Step("", "look", "look", 0, 0, 1)], won=j < wins)
            for j in range(N)
        ]
        cast = [[[Vote("", -1, complaints[t.won], [], [])]] for t in trajectories]
        adapt(
            REWRITER, desk.world, CRITIQUE, desk.pool, [task], trajectories, cast, desk.config,
            iteration=0, seed=0,
        )  # fmt: skip
        return desk.last()["critique"]

    desk.texts = ["nonsense"]
    complaints = {True: "was there before", False: "nothing happened"}
    assert critique(1, complaints) == "nothing happened"
    desk.config.update(low=0.1, high=0.5)
    assert critique(3, complaints) == "was there before; nothing happened"


def test_lost_episodes_measure_nothing(desk: Desk) -> None:
    task = desk.originals[0]
    desk.adapt({task: 0}, "hint on", lost=2)  # which were "won"
    assert desk.last()["accuracy_before"] == 0.0
    (child,) = desk.pool.pending()
    desk.adapt({child: 0}, lost=N)
    assert desk.pool.pending() == [child]  # it waits for rollouts that count
    desk.adapt({child: 1}, lost=2)
    assert desk.last()["accuracy_after"] == 0.5 and desk.pool.accepted() == [child]
    statistics = desk.pool.statistics(child.id)
    assert (statistics.wins, statistics.rollouts) == (1, 2)


def test_those_furthest_out_of_range_come_first_and_no_more_than_may_wait(desk: Desk) -> None:
    a, b, c, d = desk.originals[:4]
    desk.config.update(low=0.5, high=0.8)
    desk.adapt({a: 1, b: 0, c: 4, d: 0}, "hint on")
    assert [task.parent for task in desk.pool.pending()] == [b.id, d.id]
    # Both wait on, since their rollouts were lost: there is no room for more.
    waiting = desk.pool.pending()
    desk.adapt({a: 0, **{task: 0 for task in waiting}}, "hint on", lost=N)
    desk.adapt({a: 0}, "hint on")
    assert desk.pool.pending() == waiting


def test_a_task_drawn_twice_is_measured_once(desk: Desk) -> None:
    task = desk.originals[0]
    trajectories = [
        Trajectory(task, j, 0, DIALOGUE, steps=[Step("", "look", "look", 0, 0, 1)], won=False)
        for _ in range(2)
        for j in range(N)
    ]
    desk.texts = ["hint on"]
    counts = adapt(
        REWRITER, desk.world, CRITIQUE, desk.pool, [task, task], trajectories, [[[]]] * 8, desk.config,
        iteration=0, seed=0,
    )  # fmt: skip
    assert counts["proposed"] == 1 and counts["refused"] == 0
    assert desk.pool.statistics(task.id).rollouts == 2 * N


def test_every_task_of_a_long_log_is_a_task(desk: Desk) -> None:
    """The planner over the whole log: none unsolvable, none solved at reset, none equal to its parent."""
    rng = random.Random(0)
    desk.config.update(max_pending=4)
    known = {task.id: task for task in desk.originals}
    made = {}  # a rejected game may be made again from another parent, under the same id
    for iteration in range(12):
        drawn = desk.pool.sample(iteration, 4)
        wins = {task: rng.choice([0, 4]) for task in drawn}
        wins |= {task: rng.randrange(N + 1) for task in desk.pool.pending()}
        game = desk.world.game(drawn[0])
        edits = [
            *(edit_towards(game, direction, rng) or "" for direction in ("easier", "harder")),
            f"object {rng.choice(game.objects).type.lower()}",
            f"receptacle {rng.choice(game.receptacles).type.lower()}",
            f"move target to {rng.choice(game.receptacles).name}",
            "the goal",
        ]
        rng.shuffle(edits)
        desk.adapt(wins, *edits)
        known |= {task.id: task for task in desk.pool.accepted()}
        made |= {(task.id, task.parent): task for task in desk.pool.pending()}
    events = desk.pool.events()
    assert all(event.keys() == EVENT for event in events)
    kinds = [event["event"] for event in events]
    assert all(kinds.count(kind) >= 5 for kind in ("refused", "proposed", "accepted", "rejected"))
    for event in events:
        if event["event"] == "refused":
            continue
        task, parent = made[event["task"], event["parent"]], known[event["parent"]]
        game = desk.world.game(task)
        assert event["instruction"] == task.instruction == game.instruction
        assert event["parent_instruction"] == parent.instruction
        assert task.parent == parent.id and task.generation == parent.generation + 1 == event["generation"]
        assert fingerprint(game) != fingerprint(desk.world.game(parent))
        simulator = Simulator(game)
        simulator.reset()
        assert not simulator.won
        for command in solve(game):
            simulator.step(command)
        assert simulator.won
        assert (event["accuracy_after"] is None) == (event["event"] == "proposed")
    refused = [event for event in events if event["event"] == "refused"]
    assert all(event["reason"] and event["task"] is None for event in refused)
    everything = [*desk.originals, *desk.pool.accepted(), *desk.pool.pending()]
    assert len({fingerprint(desk.world.game(task)) for task in everything}) == len(everything)
    assert dataclasses.asdict(everything[-1]) == dataclasses.asdict(Task.from_json(everything[-1].to_json()))
