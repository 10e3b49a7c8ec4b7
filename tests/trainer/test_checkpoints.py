"""The resumable state: what is saved comes back, what was killed half-way does not."""

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rlanything_jax.trainer.checkpoints import Checkpoints
from rlanything_jax.trainer.optimizers import optimizer
from rlanything_jax.trainer.step import TrainState, init_state

ADAM = optimizer(0.01, master_weights=True)
HOST = {"iteration": 3, "tasks": [{"id": "a", "spec": {"n": [1, 2.5, None, True]}}], "text": "é\n"}


def arrays(scale: float = 1.0, size: int = 4, **more: Any) -> dict[str, TrainState]:
    """Policy and judge with moments that are not zero, in the types that a state has."""
    params = {
        "embed": jnp.arange(size * 3.0).reshape(size, 3) * scale,
        "half": jnp.ones(2, jnp.bfloat16) * scale,
    }
    state = init_state(params | more, ADAM)
    moments = jax.tree.map(lambda x: x + jnp.ones_like(x), state.opt_state)
    return {"policy": TrainState(state.params, moments, jnp.array(7, jnp.int32)), "judge": state}


def assert_equal(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_what_is_saved_comes_back_in_another_process_object(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    assert checkpoints.latest() is None
    saved = arrays(0.1)
    checkpoints.save(3, saved, HOST)
    checkpoints.close()
    reopened = Checkpoints(str(tmp_path))
    assert reopened.latest() == 3
    iteration, restored, host = reopened.restore(arrays(0.0))
    assert iteration == 3 and host == HOST
    assert_equal(restored, saved)
    assert int(restored["policy"].step) == 7
    reopened.close()


def test_the_latest_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path), keep=2)
    for i in (2, 4, 6):
        checkpoints.save(i, arrays(i), {"at": i})
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir() if p.is_dir()) == ["4", "6"]
    iteration, restored, host = checkpoints.restore(arrays(0.0))
    assert (iteration, host) == (6, {"at": 6})
    assert_equal(restored, arrays(6))
    checkpoints.close()


@pytest.mark.parametrize(
    ("saved", "configured"),
    [
        ({"size": 4}, {"size": 5}),
        ({"size": 5}, {"size": 4}),
        ({}, {"head": np.ones(3)}),
        ({"head": np.ones(3)}, {}),
        ({"head": np.ones(3, np.float32)}, {"head": np.ones(3, np.float16)}),
    ],
    ids=["fewer rows", "more rows", "untied", "tied", "half precision"],
)
def test_a_checkpoint_of_another_model_is_named(tmp_path: Path, saved: dict, configured: dict) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(3, arrays(**saved), HOST)
    name = "head" if "head" in saved | configured else "embed"
    with pytest.raises(
        ValueError, match=rf"checkpoint 3 in {tmp_path}.*'{name}'\] is .* there, .* here; .*--workdir"
    ):
        checkpoints.restore(arrays(**configured))
    checkpoints.close()


def test_killed_mid_write_checkpoint_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 24: a save that never got to its last rename leaves a temporary folder, and the one before it
    counts.
    """
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save(3, arrays(3.0), {"at": 3})

    class Killed(BaseException):
        pass

    def rename(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, rename)
            patch.setattr(Path, name, rename)
        with pytest.raises(Killed):
            checkpoints.save(4, arrays(4.0), {"at": 4})
    left = [p.name for p in (tmp_path / "checkpoints").iterdir()]
    assert "4" not in left and len(left) > 1
    reopened = Checkpoints(str(tmp_path))
    assert reopened.latest() == 3
    iteration, restored, host = reopened.restore(arrays(0.0))
    assert (iteration, host) == (3, {"at": 3})
    assert_equal(restored, arrays(3.0))
    reopened.save(4, arrays(4.5), {"at": 4})  # the continued run saves the same iteration again
    assert reopened.restore(arrays(0.0))[2] == {"at": 4}
    reopened.close()
