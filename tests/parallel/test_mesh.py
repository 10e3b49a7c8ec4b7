"""Meshes from the sizes of a config."""

import jax
import pytest

from rlanything_jax.parallel.mesh import AXES, axis_sizes, make_meshes


def sizes(
    data: int = 1, fsdp: int = 1, tensor: int = 1, sequence: int = 1, expert: int = 1
) -> dict[str, int]:
    return {"data": data, "fsdp": fsdp, "tensor": tensor, "sequence": sequence, "expert": expert}


def test_one_axis_takes_what_the_others_leave() -> None:
    assert axis_sizes(sizes(data=2, fsdp=-1, tensor=4), 64) == sizes(data=2, fsdp=8, tensor=4)
    assert axis_sizes({"data": -1}, 1) == sizes()


@pytest.mark.parametrize(
    "wrong", [sizes(data=3), sizes(fsdp=-1, tensor=3), sizes(data=-1, fsdp=-1), sizes(data=0), sizes(data=-2)]
)
def test_sizes_that_do_not_make_up_the_devices_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"config\.mesh=.* does not make up 8 device\(s\)"):
        axis_sizes(wrong, 8)


def test_an_axis_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match=r"no axes \['model'\]; choose from data, fsdp"):
        axis_sizes({"model": 2}, 8)


def test_a_laptop_has_a_mesh_of_one_device() -> None:
    meshes = make_meshes(sizes(data=-1), jax.devices()[:1])
    assert meshes.train.axis_names == AXES and meshes.train.size == 1
    assert meshes.by_host == meshes.here == meshes.local and meshes.local.shape == {
        "data": 1,
        "tensor": 1,
        "expert": 1,
    }


def test_some_device_of_a_host_must_train() -> None:
    with pytest.raises(ValueError, match=r"config\.rollout_mesh\.devices=1: of the 1 devices"):
        make_meshes(sizes(data=-1), jax.devices()[:1], rollout={"devices": 1})


def test_sampling_splits_a_model_as_its_devices_allow() -> None:
    with pytest.raises(ValueError, match=r"tensor=2 times expert=1 must divide the 1 devices"):
        make_meshes(sizes(data=-1), jax.devices()[:1], rollout={"tensor": 2})
