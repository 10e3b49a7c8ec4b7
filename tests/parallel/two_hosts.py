"""What two hosts tell each other: run twice by test_hosts.py, with the coordinator's address and the number of the process."""

import sys

import jax
import numpy as np

from rlanything_jax.parallel import hosts
from rlanything_jax.parallel.layout import DECODE, on_mesh, place, shardings, this_host
from rlanything_jax.parallel.mesh import make_meshes

hosts.initialize(sys.argv[1], 2, int(sys.argv[2]))
here = jax.process_index()
meshes = make_meshes({"fsdp": -1, "tensor": 2})
assert meshes.train.size == 8 and dict(meshes.local.shape) == {"data": 2, "tensor": 2, "expert": 1}
assert meshes.local.devices.tolist() == meshes.by_host.devices[2 * here : 2 * here + 2].tolist()

known = {"a tokenizer": lambda text: text}  # which no pickle holds


def work(mine: list[int], first: int) -> list[tuple[int, int, int, dict]]:
    assert len(mine) in (2, 3)
    return [(item, first, here, known) for item in mine]


with on_mesh(meshes.local):
    results = hosts.shared_out([10, 11, 12, 13, 14], work, known=[known])
    assert [result[:3] for result in results] == [(10, 0, 0), (11, 0, 0), (12, 2, 1), (13, 2, 1), (14, 2, 1)]
    assert all(result[3] is known for result in results)
    assert hosts.shared_out([7], lambda mine, first: [mine[0] + here]) == [8]  # the second host's
    assert hosts.any_host(here == 1) and not hosts.any_host(False)

    done = []
    hosts.on_first(lambda: done.append(here))
    assert done == ([0] if here == 0 else [])

    def refuse() -> None:
        raise ValueError(f"host {here} refuses")

    try:
        hosts.on_first(refuse)
        raise AssertionError("nothing was raised")
    except ValueError as error:
        assert str(error) == "host 0 refuses"

    hosts.check_agreement("the pool", lambda: {"a": 1.5})
    try:
        hosts.check_agreement("the pool", lambda: {"a": here})
        raise AssertionError("nothing was raised")
    except RuntimeError as error:
        assert "the pool differs between hosts" in str(error)

kernel = np.arange(2 * 16 * 8, dtype=np.float32).reshape(2, 16, 8)
tree = {"layers": {"wq": {"kernel": kernel}}}
trained = place(tree, shardings(tree, meshes.train))
assert not trained["layers"]["wq"]["kernel"].is_fully_addressable
mine = this_host(place(trained, shardings(tree, meshes.by_host, DECODE)), meshes.local)["layers"]["wq"][
    "kernel"
]
assert mine.is_fully_addressable and mine.sharding.mesh == meshes.local
assert mine.addressable_shards[0].data.shape == (2, 16, 4)
np.testing.assert_array_equal(mine, kernel)
print("agreed")
