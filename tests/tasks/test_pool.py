"""The task pool: acceptance by Algorithm 1, sampling, and a state that survives a restart."""

import collections
import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlanything_jax.tasks import Task, TaskPool


def fingerprint(task):
    return str(task.spec["game"])


def original(name):
    return Task(name, "counter", f"play {name}", {"game": name})


def rewrite(parent, game, id=None):
    id = id or f"{parent.id}/{game}"
    return Task(id, "counter", f"play {game}", {"game": game}, parent.id, parent.generation + 1)


def make(*names, original_share=0.5, seed=0):
    tasks = [original(name) for name in names]
    return TaskPool(tasks, seed=seed, original_share=original_share, fingerprint=fingerprint)


def propose(pool, task, direction="harder", accuracy_before=0.875, iteration=4):
    return pool.propose(
        task,
        direction=direction,
        critique="looks in the wrong place",
        edit=f"game {task.spec['game']}",
        accuracy_before=accuracy_before,
        iteration=iteration,
    )


def accept(pool, parent, *games):
    """Puts verified rewrites of one parent into the pool."""
    tasks = [rewrite(parent, game) for game in games]
    for task in tasks:
        assert propose(pool, task)
    pool.settle(5, {task.id: 0.5 for task in tasks}, 0.2, 0.8)
    return tasks


@pytest.mark.parametrize(
    ("direction", "before", "after", "accepted", "reason"),
    [
        # harder: low < acc' < acc, with low = 0.25
        ("harder", 0.875, 0.5, True, "0.25 < 0.5 < 0.875"),
        ("harder", 0.875, 0.875, False, "measured 0.875, needs 0.25 < accuracy < 0.875"),
        ("harder", 0.875, 1.0, False, "measured 1, needs 0.25 < accuracy < 0.875"),
        ("harder", 0.875, 0.25, False, "measured 0.25, needs 0.25 < accuracy < 0.875"),
        ("harder", 0.875, 0.0, False, "measured 0, needs 0.25 < accuracy < 0.875"),
        # easier: acc < acc' < high, with high = 0.75
        ("easier", 0.125, 0.5, True, "0.125 < 0.5 < 0.75"),
        ("easier", 0.125, 0.125, False, "measured 0.125, needs 0.125 < accuracy < 0.75"),
        ("easier", 0.125, 0.0, False, "measured 0, needs 0.125 < accuracy < 0.75"),
        ("easier", 0.0, 0.75, False, "measured 0.75, needs 0 < accuracy < 0.75"),
        ("easier", 0.0, 1.0, False, "measured 1, needs 0 < accuracy < 0.75"),
    ],
)
def test_a_rewrite_is_accepted_only_if_accuracy_moved_the_right_way_and_stayed_in_range(
    direction, before, after, accepted, reason
):
    pool = make("a")
    task = rewrite(pool["a"], "b")
    assert propose(pool, task, direction, before)
    assert pool.pending() == [task]
    assert pool.settle(5, {task.id: after}, 0.25, 0.75) == ([task] if accepted else [])
    assert pool.pending() == []
    assert pool.accepted() == ([task] if accepted else [])
    assert (task.id in pool) == accepted
    assert pool.events()[-1] == {
        "event": "accepted" if accepted else "rejected",
        "iteration": 5,
        "task": "a/b",
        "parent": "a",
        "generation": 1,
        "direction": direction,
        "instruction": "play b",
        "parent_instruction": "play a",
        "critique": "looks in the wrong place",
        "edit": "game b",
        "accuracy_before": before,
        "accuracy_after": after,
        "reason": reason,
    }


def test_pending_tasks_that_were_not_measured_wait():
    pool = make("a")
    first, second = rewrite(pool["a"], "b"), rewrite(pool["a"], "c")
    propose(pool, first)
    propose(pool, second)
    assert pool.settle(5, {second.id: 0.5}, 0.2, 0.8) == [second]
    assert pool.pending() == [first]
    with pytest.raises(KeyError, match="'a/c' is not pending"):
        pool.settle(6, {first.id: 0.5, second.id: 0.5}, 0.2, 0.8)
    assert pool.pending() == [first]
    assert pool.settle(6, {first.id: 0.5}, 0.2, 0.8) == [first]


def test_a_proposal_equal_to_its_parent_or_to_a_task_of_the_pool_is_refused():
    pool = make("a", "b")
    (accepted,) = accept(pool, pool["a"], "c")
    propose(pool, rewrite(pool["a"], "d"))
    before = len(pool.events())
    for game, reason in [
        ("a", "the same game as its parent"),
        ("b", "the same game as task b"),
        ("c", "the same game as task a/c"),
        ("d", "the same game as task a/d"),
    ]:
        assert not propose(pool, rewrite(pool["a"], game, id="new"))
        assert pool.events()[-1]["event"] == "refused"
        assert pool.events()[-1]["task"] is None
        assert pool.events()[-1]["reason"] == reason
    assert len(pool.events_since(before)) == 4
    assert [task.id for task in pool.pending()] == ["a/d"]
    assert pool.fingerprints() == {"a", "b", "c", "d"}


def test_a_rejected_game_may_be_proposed_again():
    pool = make("a")
    for iteration in (1, 2):
        assert propose(pool, rewrite(pool["a"], "b"), iteration=iteration)
        assert pool.settle(iteration + 1, {"a/b": 0.0}, 0.2, 0.8) == []
        assert pool.fingerprints() == {"a"}
        assert list(pool.to_json()["fingerprints"]) == ["a"]
    assert [event["event"] for event in pool.events()] == ["proposed", "rejected"] * 2


def test_refusals_are_logged_with_their_reason():
    pool = make("a")
    pool.refuse(
        "a",
        direction="easier",
        critique="never opens the fridge",
        edit="goal Mug Cloud",
        accuracy_before=0.0,
        iteration=2,
        reason="no Cloud in this room",
    )
    (event,) = pool.events()
    assert (event["event"], event["task"], event["parent"]) == ("refused", None, "a")
    assert event["reason"] == "no Cloud in this room"
    assert event["edit"] == "goal Mug Cloud"
    assert pool.pending() == []


def test_wrong_tasks_are_errors():
    with pytest.raises(ValueError, match="id 'a'"):
        make("a", "b", "a")
    with pytest.raises(ValueError, match="at least one"):
        make()
    with pytest.raises(ValueError, match="original_share=1.5"):
        make("a", original_share=1.5)
    with pytest.raises(ValueError, match="not an original"):
        TaskPool([rewrite(original("a"), "b")], seed=0, original_share=1.0, fingerprint=fingerprint)
    pool = make("a", "b")
    with pytest.raises(ValueError, match="'b' is in the pool already"):
        propose(pool, rewrite(pool["a"], "c", id="b"))
    with pytest.raises(ValueError, match="parent 'z'"):
        propose(pool, rewrite(original("z"), "c"))
    with pytest.raises(ValueError, match="it must be 1"):
        propose(pool, Task("c", "counter", "", {"game": "c"}, parent="a", generation=2))
    with pytest.raises(ValueError, match="direction 'sideways'"):
        propose(pool, rewrite(pool["a"], "c"), direction="sideways")
    propose(pool, rewrite(pool["a"], "c"))
    with pytest.raises(ValueError, match="parent 'a/c'"):  # not verified yet
        propose(pool, rewrite(pool["a/c"], "d"))
    with pytest.raises(KeyError, match="'z'"):
        pool["z"]


def test_lineage_and_generations():
    pool = make("a", "b")
    (first,) = accept(pool, pool["a"], "c")
    (second,) = accept(pool, first, "d")
    propose(pool, rewrite(second, "e"))
    assert [task.id for task in pool.lineage("a/c/d/e")] == ["a", "a/c", "a/c/d", "a/c/d/e"]
    assert [task.id for task in pool.lineage("b")] == ["b"]
    assert pool.generations() == {0: 2, 1: 1, 2: 1}


def test_statistics_add_up_over_iterations():
    pool = make("a")
    assert pool.statistics("a").rollouts == 0
    pool.record("a", iteration=0, wins=2, rollouts=8)
    pool.record("a", iteration=3, wins=3, rollouts=4)
    statistics = pool.statistics("a")
    assert (statistics.rollouts, statistics.wins) == (12, 5)
    assert (statistics.last_iteration, statistics.last_accuracy) == (3, 0.75)
    with pytest.raises(ValueError, match="5 wins in 4 rollouts"):
        pool.record("a", iteration=4, wins=5, rollouts=4)
    with pytest.raises(KeyError, match="'z'"):
        pool.record("z", iteration=4, wins=0, rollouts=4)


def test_samples_are_shared_between_originals_and_rewrites():
    pool = make(*"abcdefgh", original_share=0.75)
    assert {task.generation for task in pool.sample(0, 8)} == {0}  # no rewrites yet
    rewrites = accept(pool, pool["a"], "r1", "r2", "r3")
    for iteration in range(20):
        tasks = pool.sample(iteration, 8)
        assert len({task.id for task in tasks}) == 8
        assert sum(task in rewrites for task in tasks) == 2
    # Each rewrite is drawn sooner or later, and each original.
    seen = {task.id for iteration in range(20) for task in pool.sample(iteration, 8)}
    assert seen == {task.id for task in (*pool.originals(), *rewrites)}


def test_no_task_comes_twice_before_all_have_come_once():
    pool = make("a", "b", original_share=0.9)
    accept(pool, pool["a"], "r1", "r2")
    assert sorted(task.id for task in pool.sample(0, 4)) == ["a", "a/r1", "a/r2", "b"]
    counts = collections.Counter(task.id for task in pool.sample(0, 7))
    assert counts["a/r1"] == counts["a/r2"] == 1
    assert sorted((counts["a"], counts["b"])) == [2, 3]


def test_samples_depend_on_seed_and_iteration_only():
    names = [f"game {i}" for i in range(50)]
    pool, again, other = make(*names, seed=1), make(*names, seed=1), make(*names, seed=2)
    later = again.sample(7, 8)  # out of order: nothing is consumed
    assert pool.sample(3, 8) == again.sample(3, 8) != other.sample(3, 8)
    assert pool.sample(7, 8) == later != pool.sample(3, 8)


def test_fingerprints_are_computed_once_and_are_part_of_the_state():
    calls = collections.Counter()

    def counting(task):
        calls[task.id] += 1
        return fingerprint(task)

    pool = TaskPool([original("a"), original("b")], seed=0, original_share=0.5, fingerprint=counting)
    assert not calls  # reading 3,553 games before the first step would take a while
    for game in "cde":
        propose(pool, rewrite(pool["a"], game))
    assert set(calls.values()) == {1} and len(calls) == 5
    restored = TaskPool.from_json(json.loads(json.dumps(pool.to_json())), fingerprint=counting)
    assert restored.fingerprints() == pool.fingerprints() == set("abcde")
    assert set(calls.values()) == {1}


GAMES = [f"g{i}" for i in range(8)]
ACCURACIES = st.integers(0, 8).map(lambda wins: wins / 8)


class PoolMachine(RuleBasedStateMachine):
    """Does the same to a pool and to a copy that was restored from JSON at some point; they must never
    differ."""

    def __init__(self):
        super().__init__()
        self.pool = make("g0", "g1", "g2", seed=5)
        self.copy = make("g0", "g1", "g2", seed=5)
        self.first = self.pool.originals()
        self.verified = {}
        self.iteration = 0

    @rule()
    def restart(self):
        self.copy = TaskPool.from_json(json.loads(json.dumps(self.pool.to_json())), fingerprint=fingerprint)

    @rule(data=st.data(), game=st.sampled_from(GAMES), direction=st.sampled_from(["harder", "easier"]))
    def propose(self, data, game, direction):
        parent = data.draw(st.sampled_from([*self.pool.originals(), *self.pool.accepted()]))
        new = rewrite(parent, game)
        if new.id in self.pool:
            return
        before = data.draw(ACCURACIES)
        tasks = [*self.pool.originals(), *self.pool.accepted(), *self.pool.pending()]
        taken = {fingerprint(task) for task in tasks}
        for pool in (self.pool, self.copy):
            assert propose(pool, new, direction, before, self.iteration) == (game not in taken)

    @precondition(lambda self: self.pool.pending())
    @rule(data=st.data())
    def settle(self, data):
        self.iteration += 1
        pending = [task.id for task in self.pool.pending()]
        measured = data.draw(st.dictionaries(st.sampled_from(pending), ACCURACIES))
        proposals = {event["task"]: event for event in self.pool.events() if event["event"] == "proposed"}
        accepted = self.pool.settle(self.iteration, measured, 0.2, 0.8)
        assert accepted == self.copy.settle(self.iteration, measured, 0.2, 0.8)
        for task_id, after in measured.items():
            before, direction = proposals[task_id]["accuracy_before"], proposals[task_id]["direction"]
            right = 0.2 < after < before if direction == "harder" else before < after < 0.8
            assert right == (task_id in {task.id for task in accepted}) == (task_id in self.pool)
        self.verified |= {task.id: measured[task.id] for task in accepted}

    @rule(data=st.data(), wins=st.integers(0, 8))
    def record(self, data, wins):
        task = data.draw(st.sampled_from(self.pool.sample(self.iteration, 3)))
        for pool in (self.pool, self.copy):
            pool.record(task.id, iteration=self.iteration, wins=wins, rollouts=8)

    @invariant()
    def the_restored_pool_continues_identically(self):
        # Fingerprints are computed when needed, here at the latest; all else must be equal as it is.
        assert self.pool.fingerprints() == self.copy.fingerprints()
        assert self.pool.to_json() == self.copy.to_json()
        assert self.pool.sample(self.iteration, 5) == self.copy.sample(self.iteration, 5)

    @invariant()
    def originals_are_never_lost(self):
        assert self.pool.originals() == self.first
        assert {task.id for task in self.pool.sample(self.iteration, 12)} >= {task.id for task in self.first}

    @invariant()
    def accepted_tasks_are_all_verified_and_no_two_tasks_are_the_same_game(self):
        assert {task.id for task in self.pool.accepted()} == set(self.verified)
        events = [event for event in self.pool.events() if event["event"] == "accepted"]
        assert {event["task"]: event["accuracy_after"] for event in events} == self.verified
        tasks = [*self.pool.originals(), *self.pool.accepted(), *self.pool.pending()]
        assert len(self.pool.fingerprints()) == len(tasks) == len({task.id for task in tasks})

    @invariant()
    def every_lineage_leads_to_an_original(self):
        for task in (*self.pool.accepted(), *self.pool.pending()):
            chain = self.pool.lineage(task.id)
            assert chain[0] in self.first and chain[-1] == task
            assert [link.generation for link in chain] == list(range(len(chain)))
            assert [link.parent for link in chain[1:]] == [link.id for link in chain[:-1]]


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_pool_machine = PoolMachine.TestCase
