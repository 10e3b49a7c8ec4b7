import dataclasses
import json

import pytest

from rlanything_jax.tasks.task import Task

TASK = Task(
    id="t1",
    world="alfworld",
    instruction="put a mug in shelf.",
    spec={"generate": {"seed": 3, "room": "kitchen"}, "edits": ["target Mug Shelf"]},
    parent="t0",
    generation=1,
)


def test_json_round_trip():
    data = TASK.to_json()
    assert list(data) == [field.name for field in dataclasses.fields(Task)]
    assert Task.from_json(json.loads(json.dumps(data))) == TASK


def test_unknown_and_missing_fields_are_errors():
    with pytest.raises(TypeError, match="goal"):
        Task.from_json(TASK.to_json() | {"goal": "x"})
    with pytest.raises(TypeError, match="spec"):
        Task.from_json({"id": "t1", "world": "alfworld", "instruction": ""})


def test_tasks_can_be_in_sets_and_differ_by_their_spec():
    other = dataclasses.replace(TASK, spec={"edits": []})
    assert len({TASK, other, Task.from_json(TASK.to_json())}) == 2
