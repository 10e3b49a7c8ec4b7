"""The environment pool: the same trajectories with and without processes, and what becomes of faults."""

import functools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlanything_jax.envs.base import Observation
from rlanything_jax.envs.pool import EnvironmentPool
from rlanything_jax.tasks.task import Task


class Counter:
    """Counts up to a goal. Some actions are faults, some report on the process."""

    def __init__(self, task):
        self.goal = task.spec["goal"]
        self.slow_s = task.spec.get("slow_s", 0)
        self.count = 0
        self.child = None

    def observe(self, **info):
        won = self.count >= self.goal
        text, score = f"{self.count} of {self.goal}", self.count / self.goal
        return Observation(text, ("add", "wait"), score, won, won, info)

    def reset(self):
        time.sleep(self.slow_s)
        self.count = 0
        return self.observe()

    def step(self, action):
        match action:
            case "add":
                self.count += 1
            case "hang":
                time.sleep(1000)
            case "crash":
                os._exit(7)
            case "raise":
                raise ArithmeticError("a bug in the environment")
            case "unpicklable":
                return self.observe(it=lambda: None)
            case "process":
                main = threading.current_thread() is threading.main_thread()
                return self.observe(pid=os.getpid(), jax="jax" in sys.modules, main_thread=main)
            case "start a child":
                self.child = subprocess.Popen(["sleep", "1000"])
                return self.observe(pid=self.child.pid)
        return self.observe()

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()


class CounterWorld:
    name = "counter"

    def environment(self, task):
        return Counter(task)


def broken_world():
    raise FileNotFoundError("no games in /nowhere")


def task(goal=3, **spec):
    return Task(f"count-{goal}", "counter", f"count to {goal}", {"goal": goal, **spec})


def pool(workers, make_world=CounterWorld, step_timeout_s=20.0, reset_timeout_s=20.0):
    return EnvironmentPool(
        make_world, workers=workers, step_timeout_s=step_timeout_s, reset_timeout_s=reset_timeout_s
    )


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(*pids, patience_s=20.0):
    deadline = time.monotonic() + patience_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture(scope="module")
def pools():
    with pool(0) as serial, pool(2) as parallel:
        yield serial, parallel


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 4), st.sampled_from(["add", "wait", "raise"])), max_size=8))
def test_trajectories_do_not_depend_on_the_number_of_workers(pools, batches):
    serial, parallel = pools
    tasks = [(slot, task(goal=1 + slot)) for slot in range(5)]
    assert serial.reset(tasks) == parallel.reset(tasks)
    running = set(range(5))
    for batch in batches:
        requests = [(slot, action) for slot, action in batch.items() if slot in running]
        observations = serial.step(requests)
        assert observations == parallel.step(requests)
        running -= {slot for (slot, _), seen in zip(requests, observations, strict=True) if seen.done}
    assert parallel.restarts == 0


def test_observations_come_in_the_order_of_the_requests(pools):
    for either in pools:
        observations = either.reset([(3, task(5)), (0, task(2)), (1, task(9)), (2, task(4))])
        assert [seen.text for seen in observations] == ["0 of 5", "0 of 2", "0 of 9", "0 of 4"]
        assert [seen.text for seen in either.step([(1, "add"), (3, "wait")])] == ["1 of 9", "0 of 5"]


def test_workers_import_no_jax_and_run_environments_in_their_main_thread(pools):
    _, parallel = pools
    parallel.reset([(0, task()), (1, task()), (2, task())])
    infos = [seen.info for seen in parallel.step([(slot, "process") for slot in range(3)])]
    assert [info["jax"] for info in infos] == [False, False, False]
    assert [info["main_thread"] for info in infos] == [True, True, True]
    assert infos[0]["pid"] == infos[2]["pid"] != infos[1]["pid"]
    assert os.getpid() not in {info["pid"] for info in infos}


def test_an_exception_loses_only_its_own_episode_and_leaves_nobody_waiting(pools):
    for either in pools:
        either.reset([(0, task()), (2, task())])
        broken, fine = either.step([(0, "raise"), (2, "add")])
        assert (broken.done, broken.won, broken.score, broken.admissible) == (True, False, 0.0, ())
        assert "ArithmeticError: a bug in the environment" in broken.info["error"]
        assert (fine.text, dict(fine.info)) == ("1 of 3", {})
        assert either.step([(2, "add")])[0].text == "2 of 3"
        assert either.reset([(0, task())])[0].text == "0 of 3"
        (unknown,) = either.reset([(0, Task("x", "counter", "no goal", {}))])
        assert "KeyError: 'goal'" in unknown.info["error"]
    assert pools[1].restarts == 0


def test_an_observation_that_cannot_be_sent_is_a_fault_of_its_episode(pools):
    _, parallel = pools
    parallel.reset([(0, task()), (2, task())])
    broken, fine = parallel.step([(0, "unpicklable"), (2, "add")])
    assert broken.done and "lambda" in broken.info["error"]
    assert fine.text == "1 of 3"


def test_a_hang_loses_the_episodes_of_its_worker_and_no_others():
    with pool(2, step_timeout_s=1.0) as environments:
        environments.reset([(slot, task()) for slot in range(8)])
        environments.step([(slot, "add") for slot in range(8)])
        (before,) = environments.step([(0, "process")])
        start = time.monotonic()
        # Worker 0 plays slots 0, 2, 4, 6: slot 0 answers before the hang, 4 waits behind it, 6 is not
        # stepped.
        seen = environments.step([(0, "add"), (1, "add"), (2, "hang"), (3, "add"), (4, "add")])
        assert 1.0 <= time.monotonic() - start < 10.0
        assert [s.text for s in seen] == ["2 of 3", "2 of 3", "", "2 of 3", ""]
        assert [s.done for s in seen] == [False, False, True, False, True]
        assert seen[2].info["error"] == "step of slot 2: no answer within 1 s"
        assert seen[4].info["error"] == "lost with its worker in the step of slot 2: no answer within 1 s"
        assert environments.restarts == 1

        seen = environments.step([(0, "add"), (6, "add"), (1, "add"), (5, "add"), (7, "add")])
        assert [s.info.get("error") for s in seen[:2]] == [
            "lost with its worker in the step of slot 2: no answer within 1 s"
        ] * 2
        assert [(s.text, s.won) for s in seen] == [
            ("", False), ("", False), ("3 of 3", True), ("2 of 3", False), ("2 of 3", False)
        ]  # fmt: skip
        assert not alive(before.info["pid"])

        assert [s.text for s in environments.reset([(slot, task(2)) for slot in (0, 2, 6)])] == ["0 of 2"] * 3
        assert [s.text for s in environments.step([(0, "add"), (2, "add"), (5, "add")])] == [
            "1 of 2", "1 of 2", "3 of 3"
        ]  # fmt: skip


def test_a_crash_is_told_from_a_hang_and_does_not_wait_for_the_deadline():
    with pool(1) as environments:
        environments.reset([(0, task()), (1, task())])
        start = time.monotonic()
        (crashed,) = environments.step([(0, "crash")])
        assert time.monotonic() - start < 10.0
        assert crashed.info["error"] == "step of slot 0: the worker process died (exit status 7)"
        assert crashed.done and not crashed.won
        (other,) = environments.step([(1, "add")])
        assert "lost with its worker in the step of slot 0" in other.info["error"]
        assert environments.reset([(1, task())])[0].text == "0 of 3"

        # Killed between two calls, as by the kernel when memory runs out.
        (seen,) = environments.step([(1, "process")])
        os.kill(seen.info["pid"], signal.SIGKILL)
        assert wait_until_dead(seen.info["pid"])
        (killed,) = environments.step([(1, "add")])
        assert killed.info["error"] == "step of slot 1: the worker process died (exit status -9)"


def test_a_slow_reset_has_its_own_deadline():
    with pool(1, step_timeout_s=20.0, reset_timeout_s=0.5) as environments:
        slow, behind = environments.reset([(0, task(slow_s=1000)), (1, task())])
        assert slow.info["error"] == "reset of slot 0: no answer within 0.5 s"
        assert "lost with its worker in the reset of slot 0" in behind.info["error"]
        assert environments.reset([(1, task())])[0].text == "0 of 3"


def test_the_deadline_is_for_one_step_not_for_the_batch():
    with pool(1, reset_timeout_s=1.0) as environments:
        seen = environments.reset([(slot, task(slow_s=0.4)) for slot in range(4)])  # 1.6 s together
        assert [s.text for s in seen] == ["0 of 3"] * 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_slot_without_a_running_episode_cannot_be_stepped(workers):
    with pool(workers) as environments:
        with pytest.raises(ValueError, match="slot 0 has no running episode"):
            environments.step([(0, "add")])
        environments.reset([(0, task(1)), (1, task(1))])
        assert environments.step([(0, "add")])[0].won
        with pytest.raises(ValueError, match="slot 0 has no running episode"):
            environments.step([(0, "add")])
        with pytest.raises(ValueError, match="twice"):
            environments.step([(1, "add"), (1, "add")])
        assert environments.step([(1, "add")])[0].won


def test_a_world_that_cannot_be_built_is_an_error_at_once():
    with pytest.raises(RuntimeError, match="worker 0 could not start: (.|\n)*no games in /nowhere"):
        pool(2, make_world=broken_world)
    with pytest.raises(FileNotFoundError, match="no games in /nowhere"):
        pool(0, make_world=broken_world)
    with pytest.raises(RuntimeError, match="exit status 3"):
        pool(1, make_world=functools.partial(os._exit, 3))
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pool(1, make_world=lambda: CounterWorld())
    with pytest.raises(ValueError, match="workers=-1"):
        pool(-1)


def test_an_interrupted_call_closes_the_pool_rather_than_mixing_up_later_answers(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with pool(1) as environments:
        environments.reset([(0, task())])
        (seen,) = environments.step([(0, "process")])
        monkeypatch.setattr("multiprocessing.connection.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            environments.step([(0, "add")])
        assert not alive(seen.info["pid"])
        with pytest.raises(ValueError, match="closed"):
            environments.reset([(0, task())])


def test_closing_ends_workers_and_what_their_environments_started():
    with pool(1) as environments:
        environments.reset([(0, task()), (1, task())])
        child, worker = environments.step([(0, "start a child"), (1, "process")])
        pids = [child.info["pid"], worker.info["pid"]]
        assert all(map(alive, pids))
    assert wait_until_dead(*pids)


def test_a_killed_worker_takes_the_children_of_its_environments_with_it():
    with pool(1, step_timeout_s=0.5) as environments:
        environments.reset([(0, task()), (1, task())])
        (child,) = environments.step([(0, "start a child")])
        environments.step([(1, "hang")])
        assert wait_until_dead(child.info["pid"])


def parent(statement):
    """Starts a process with a pool of one worker whose environment hangs, and returns it with the worker's
    pids."""
    code = f"""
        import os, signal, sys, threading
        sys.path[:] = {sys.path!r}
        from {__name__} import *
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
        with pool(1, step_timeout_s=1000) as environments:
            environments.reset([(0, task()), (1, task())])
            child, worker = environments.step([(0, "start a child"), (1, "process")])
            print(child.info["pid"], worker.info["pid"], flush=True)
            {statement}
            environments.step([(0, "hang")])
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


def test_workers_do_not_outlive_a_killed_parent():
    process, pids = parent("threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()")
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert wait_until_dead(*pids)


def test_an_interrupt_from_the_terminal_is_handled_by_the_parent_alone():
    process, pids = parent("")
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.count("Traceback") == 1 and errors.endswith("KeyboardInterrupt\n")
    assert wait_until_dead(*pids)


def test_answers_are_collected_later_and_by_parts():
    """A slow slot does not hold another one back, and what is under way cannot be asked again."""
    with pool(2) as envs:
        for observation in envs.reset([(slot, task(goal=2)) for slot in range(4)]):
            assert observation.text == "0 of 2"
        first = envs.submit_step([(0, "add"), (2, "wait")])
        second = envs.submit_step([(1, "add"), (3, "raise")])
        assert (first, second) == ([0, 2], [1, 3])
        with pytest.raises(ValueError, match=r"slots \[1\] are under way"):
            envs.submit_step([(1, "add")])
        with pytest.raises(ValueError, match=r"slots \[7\] are not under way"):
            envs.collect([7])
        assert [o.text for o in envs.collect([2])] == ["0 of 2"]
        added, broken = envs.collect(second)
        assert added.text == "1 of 2" and "a bug in the environment" in broken.info["error"]
        envs.submit_step([(1, "add")])
        assert [o.text for o in envs.collect([0])] == ["1 of 2"]
        assert envs.collect([1])[0].won


def test_a_worker_that_dies_with_two_submissions_under_way_answers_both_with_faults():
    with pool(2) as envs:
        envs.reset([(slot, task(goal=2)) for slot in range(5)])
        first = envs.submit_step([(0, "crash"), (1, "add")])
        second = envs.submit_step([(2, "add"), (3, "add")])
        crashed, healthy = envs.collect(first)
        assert "step of slot 0: the worker process died" in crashed.info["error"] and healthy.text == "1 of 2"
        lost, other = envs.collect(second)
        assert "lost with its worker in the step of slot 0" in lost.info["error"] and other.text == "1 of 2"
        assert "lost with its worker" in envs.step([(4, "add")])[0].info["error"]
        assert envs.restarts == 1
