"""Safetensors folders, read a slice at a time and written a tensor at a time.

A safetensors file is eight bytes of header length, a JSON header `{name: {dtype, shape, data_offsets}}` and the
raw tensors. The `safetensors` package maps whole files, has no bfloat16 in numpy and wants all tensors of a file
before it writes the first, so the few lines that the format needs are here: a read maps one tensor and unmaps it
when its slice is gone; a write holds one tensor.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


class TensorInfo(NamedTuple):
    """What is known of a tensor before it is read."""

    file: Path
    shape: tuple[int, ...]


class TensorSource(Protocol):
    """Named tensors in Hugging Face names and layouts, whatever they are stored in."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """The slice `index` (one slice a dimension) of a tensor, in a floating-point dtype of the source's choice."""
        ...


class _Stored(NamedTuple):
    info: TensorInfo
    dtype: np.dtype
    offset: int  # of the first byte, from the start of the file


class SafetensorsFolder:
    """The tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` names.

    Raises FileNotFoundError where the folder has neither or the index names a file that is not there, ValueError on
    a truncated file, a damaged header, a dtype other than F32, F16 and BF16, or an index that disagrees with its
    files.
    """

    def __init__(self, folder: Path) -> None:
        self._stored: dict[str, _Stored] = {}
        if (folder / INDEX).is_file():
            self._add_shards(folder / INDEX)
        elif (folder / WEIGHTS).is_file():
            self._stored = read_header(folder / WEIGHTS)
        else:
            raise FileNotFoundError(f"{folder} has neither {WEIGHTS} nor {INDEX}")
        self.tensors: Mapping[str, TensorInfo] = {name: s.info for name, s in self._stored.items()}

    def _add_shards(self, index: Path) -> None:
        try:
            weight_map: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{index}: no readable 'weight_map' ({error!r})") from None
        for file in sorted(set(weight_map.values())):
            path = index.parent / file
            if not path.is_file():
                name = next(name for name, f in weight_map.items() if f == file)
                raise FileNotFoundError(f"{index}: weight_map[{name!r}] names {file!r}, which is not there")
            self._stored |= read_header(path)
        for name, file in weight_map.items():
            if name not in self._stored or self._stored[name].info.file.name != file:
                raise ValueError(f"{index}: weight_map[{name!r}] names {file!r}, which has no such tensor")

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A lazy view of the file; only the pages of the slice are read, when it is copied from."""
        (file, shape), dtype, offset = self._stored[name]
        return np.memmap(file, dtype, mode="r", offset=offset, shape=shape)[index]


def read_header(path: Path) -> dict[str, _Stored]:
    """Name -> place of every tensor of a file. Raises ValueError on a file that is not whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ValueError(f"{path}: truncated: {size} bytes do not hold the header of {length} bytes")
        try:
            header = json.loads(file.read(length))
            return {
                name: _stored(path, name, field, 8 + length, size)
                for name, field in header.items()
                if name != "__metadata__"
            }
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: the header is not one of a safetensors file ({error!r})") from None


def _stored(path: Path, name: str, field: Mapping, start: int, size: int) -> _Stored:
    if field["dtype"] not in DTYPES:
        raise ValueError(
            f"{path}: tensor {name!r} has dtype {field['dtype']}; weights are read from {sorted(DTYPES)}"
        )
    dtype, shape, (begin, end) = DTYPES[field["dtype"]], tuple(field["shape"]), field["data_offsets"]
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{path}: tensor {name!r}: data_offsets {begin, end} do not fit shape {shape}")
    if start + end > size:
        raise ValueError(
            f"{path}: truncated: tensor {name!r} ends at byte {start + end}, the file at byte {size}"
        )
    return _Stored(TensorInfo(path, shape), dtype, start + begin)


class NewTensor(NamedTuple):
    """A tensor to write; `make` is called once, when its bytes are due."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    make: Callable[[], np.ndarray]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_folder(folder: Path, tensors: Sequence[NewTensor], *, shard_bytes: int) -> None:
    """Writes tensors as one file or, beyond `shard_bytes`, as several with an index.

    A tensor larger than `shard_bytes` gets a shard of its own.
    """
    shards: list[list[NewTensor]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(t.size for t in shards[-1]) + tensor.size > shard_bytes:
            shards.append([])
        shards[-1].append(tensor)
    if len(shards) == 1:
        write_file(folder / WEIGHTS, shards[0])
        return
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, start=1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        write_file(folder / file, shard)
        weight_map |= {tensor.name: file for tensor in shard}
    index = {"metadata": {"total_size": sum(t.size for t in tensors)}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")


def write_file(path: Path, tensors: Sequence[NewTensor]) -> None:
    """Writes one safetensors file. Raises ValueError on a dtype other than float32, float16 and bfloat16."""
    # Wide dtypes first keep every tensor aligned to its own width.
    tensors = sorted(tensors, key=lambda t: -t.dtype.itemsize)
    header: dict[str, object] = {
        "__metadata__": {"format": "pt"}
    }  # transformers refuses a file without a format
    offset = 0
    for tensor in tensors:
        if tensor.dtype not in CODES:
            raise ValueError(
                f"{tensor.name!r} has dtype {tensor.dtype}; weights are written in {sorted(DTYPES)}"
            )
        ends = [offset, offset + tensor.size]
        header[tensor.name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": ends,
        }
        offset = ends[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            array = np.ascontiguousarray(tensor.make())
            if array.shape != tensor.shape or array.dtype != tensor.dtype:
                raise ValueError(
                    f"{tensor.name!r}: got {array.dtype}{array.shape}, announced {tensor.dtype}{tensor.shape}"
                )
            file.write(array.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
