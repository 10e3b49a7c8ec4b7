"""What hosts tell each other, on one and on two of them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rlanything_jax.parallel import hosts


def test_one_host_does_everything_itself() -> None:
    assert hosts.alone() and hosts.first() and hosts.share(5) == slice(0, 5)
    items = [object(), object()]
    assert hosts.gather(items) is items
    assert hosts.shared_out([3, 4], lambda mine, first: [(mine, first)]) == [([3, 4], 0)]
    assert hosts.shared_out([], lambda mine, first: [1 / 0]) == []
    assert not hosts.any_host(False)
    with pytest.raises(ValueError, match="no"):
        hosts.on_first(lambda: (_ for _ in ()).throw(ValueError("no")))


@pytest.mark.parametrize("count", [0, 1, 7, 64])
@pytest.mark.parametrize("of", [1, 3, 16])
def test_shares_are_the_whole_and_differ_by_one_at_most(
    monkeypatch: pytest.MonkeyPatch, count: int, of: int
) -> None:
    monkeypatch.setattr(hosts.jax, "process_count", lambda: of)
    parts = []
    for host in range(of):
        monkeypatch.setattr(hosts.jax, "process_index", lambda host=host: host)
        parts.append(range(count)[hosts.share(count)])
    assert [item for part in parts for item in part] == list(range(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_an_address_alone_is_not_enough() -> None:
    with pytest.raises(ValueError, match="--coordinator, --processes and --process go together"):
        hosts.initialize("localhost:1")


def test_two_hosts_agree() -> None:
    root = Path(__file__).resolve().parents[2]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    variables = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", str(Path(__file__).parent / "two_hosts.py"), address, str(i)],
            env=os.environ | variables | {"PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for process in processes:
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0 and out.endswith("agreed\n"), err[-3000:]
