"""Safetensors files against the `safetensors` package, both ways, and damaged ones."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from rlanything_jax.models.tensor_files import (
    INDEX,
    WEIGHTS,
    NewTensor,
    SafetensorsFolder,
    write_file,
    write_folder,
)

WHOLE = slice(None)


def new(name: str, array: np.ndarray) -> NewTensor:
    return NewTensor(name, array.shape, array.dtype, lambda: array)


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "odd": rng.normal(size=3).astype(np.float16),
        "wide": rng.normal(size=(4, 6)).astype(np.float32),
        "brain": rng.normal(size=(5, 3)).astype(ml_dtypes.bfloat16),
    }


def test_package_reads_what_we_write(tmp_path: Path) -> None:
    write_file(tmp_path / WEIGHTS, [new(name, a) for name, a in arrays().items() if name != "brain"])
    found = safetensors.numpy.load_file(tmp_path / WEIGHTS)
    assert found.keys() == {"odd", "wide"}
    for name, array in found.items():
        np.testing.assert_array_equal(array, arrays()[name])
    with safetensors.safe_open(tmp_path / WEIGHTS, "np") as file:
        assert file.metadata() == {"format": "pt"}


def test_we_read_what_the_package_writes(tmp_path: Path) -> None:
    safetensors.numpy.save_file(
        {name: a for name, a in arrays().items() if name != "brain"}, tmp_path / WEIGHTS, {"format": "pt"}
    )
    folder = SafetensorsFolder(tmp_path)
    assert folder.tensors["wide"].shape == (4, 6)
    np.testing.assert_array_equal(folder.read("wide", (slice(1, 3), slice(2, 6))), arrays()["wide"][1:3, 2:6])
    np.testing.assert_array_equal(folder.read("odd", (WHOLE,)), arrays()["odd"])


def test_bfloat16_survives_a_round_trip_bit_by_bit(tmp_path: Path) -> None:
    write_file(tmp_path / WEIGHTS, [new("brain", arrays()["brain"])])
    read = SafetensorsFolder(tmp_path).read("brain", (WHOLE, WHOLE))
    assert read.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(read.view(np.uint16), arrays()["brain"].view(np.uint16))


def test_shards_hold_at_most_the_limit_and_the_index_names_them(tmp_path: Path) -> None:
    tensors = [new(f"t{i}", np.full(10, i, np.float32)) for i in range(5)]
    write_folder(tmp_path, tensors, shard_bytes=80)
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 200
    assert index["weight_map"] == {f"t{i}": f"model-0000{i // 2 + 1}-of-00003.safetensors" for i in range(5)}
    folder = SafetensorsFolder(tmp_path)
    assert [folder.read(f"t{i}", (slice(0, 1),))[0] for i in range(5)] == [0, 1, 2, 3, 4]


def test_tensor_above_the_limit_gets_its_own_shard(tmp_path: Path) -> None:
    write_folder(
        tmp_path, [new("a", np.zeros(100, np.float32)), new("b", np.zeros(1, np.float32))], shard_bytes=8
    )
    assert json.loads((tmp_path / INDEX).read_text())["weight_map"] == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00002-of-00002.safetensors",
    }


@pytest.mark.parametrize("missing", [1, 50])
def test_truncated_file_is_named_with_its_tensor(tmp_path: Path, missing: int) -> None:
    path = tmp_path / WEIGHTS
    write_file(path, [new("first", np.zeros(10, np.float32)), new("last", np.zeros(10, np.float32))])
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(
        ValueError, match=rf"{path}: truncated: tensor '{'last' if missing == 1 else 'first'}'"
    ):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 20])
def test_file_cut_within_its_header(tmp_path: Path, size: int) -> None:
    path = tmp_path / WEIGHTS
    write_file(path, [new("a", np.zeros(10, np.float32))])
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=rf"{path}: truncated: {size} bytes do not hold the header"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"[1, 2] ", "the header is not one of a safetensors file"),
        (b"{not js", "the header is not one of a safetensors file"),
        (b'{"a": {"dtype": "F32", "shape": [1]}}', "the header is not one of a safetensors file"),
        (b'{"a": {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}}', "'a' has dtype I64"),
        (b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', "do not fit shape"),
    ],
)
def test_damaged_header(tmp_path: Path, header: bytes, message: str) -> None:
    (tmp_path / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match=message) as caught:
        SafetensorsFolder(tmp_path)
    assert str(tmp_path / WEIGHTS) in str(caught.value)


def test_index_that_names_a_missing_file(tmp_path: Path) -> None:
    write_folder(tmp_path, [new(n, np.zeros(2, np.float32)) for n in "ab"], shard_bytes=8)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"index.json: weight_map\['b'\] names 'model-00002-of-00002"):
        SafetensorsFolder(tmp_path)


def test_index_that_disagrees_with_its_file(tmp_path: Path) -> None:
    write_folder(tmp_path, [new(n, np.zeros(2, np.float32)) for n in "ab"], shard_bytes=8)
    index = tmp_path / INDEX
    index.write_text(index.read_text().replace('"a"', '"c"'))
    with pytest.raises(ValueError, match=r"weight_map\['c'\] names 'model-00001-of-00002.*no such tensor"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"weight_map": 3}', '{"weight_map": [1]}'])
def test_index_without_a_weight_map(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match="no readable 'weight_map'"):
        SafetensorsFolder(tmp_path)


def test_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has neither model.safetensors nor"):
        SafetensorsFolder(tmp_path)


def test_array_that_is_not_what_was_announced(tmp_path: Path) -> None:
    wrong = NewTensor("a", (2,), np.dtype(np.float32), lambda: np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="announced"):
        write_file(tmp_path / WEIGHTS, [wrong])


def test_integers_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' has dtype int8"):
        write_file(tmp_path / WEIGHTS, [new("a", np.zeros(2, np.int8))])
