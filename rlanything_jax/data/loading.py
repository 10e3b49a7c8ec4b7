"""Reads prepared data sets: by index, and as a stream that is shuffled, shared by hosts and continued exactly."""

from __future__ import annotations

import functools
import json
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grain.python as grain
import tensorflow_datasets as tfds

from rlanything_jax.data import builders
from rlanything_jax.data.catalogue import DATA_SETS
from rlanything_jax.envs.code.problem import Problem
from rlanything_jax.envs.math.question import Question


class Source:
    """The items of a split, by index: a random-access source as `grain` wants it."""

    def __init__(self, name: str, split: str, records: Any, rejected: list[str]) -> None:
        self.name, self.split = name, split
        self.rejected = rejected  # what preparing left out, of all splits, as text
        self._records = records
        self._item = DATA_SETS[name].item

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Problem | Question:
        return self._item.from_json(json.loads(self._records[index]["record"]))

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {self.split!r}, {len(self)} records)"


def load(name: str, split: str, data_dir: str | Path) -> Source:
    """Opens a split that `python -m rlanything_jax.data prepare` made in `data_dir`.

    ValueError for a name or a split that does not exist, FileNotFoundError where nothing is prepared.
    """
    if name not in DATA_SETS:
        raise ValueError(f"no data set {name!r}; there are {', '.join(DATA_SETS)}")
    builder = builders.BUILDERS[name](data_dir=str(data_dir))
    if not builder.is_prepared():
        raise FileNotFoundError(
            f"{name} is not prepared in {data_dir}: run python -m rlanything_jax.data prepare "
            f"--raw=FOLDER --out={data_dir} --only={name}"
        )
    if split not in builder.info.splits:
        raise ValueError(f"{name} has no split {split!r}; there are {', '.join(builder.info.splits)}")
    settings = {"file_format": builders.FILE_FORMAT}
    records = tfds.data_source(
        name, split=split, data_dir=str(data_dir), download=False, builder_kwargs=settings
    )
    return Source(name, split, records, list(builder.info.metadata["rejected"]))


class _Epochs:
    """`source` over and over, each time in another order.

    In place of `grain`'s own shuffle, whose every index costs as much as reading its record.
    """

    def __init__(self, source: Source, seed: int, length: int) -> None:
        self._source, self._seed, self._length = source, seed, length
        self._order = functools.lru_cache(maxsize=2)(self._shuffled)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Problem | Question:
        epoch, place = divmod(index, len(self._source))
        return self._source[self._order(epoch)[place]]

    def _shuffled(self, epoch: int) -> list[int]:
        return random.Random(f"{self._seed}/{epoch}").sample(range(len(self._source)), len(self._source))


class Loader:
    """An endless or finite stream of one host's share of `source`, each epoch in an order of its own.

    All hosts draw the same global order from `seed`; host `shard_index` of `shard_count` takes every
    shard_count-th item of it. So the shares are disjoint, and of equal length: of a finite stream, what is left
    after an equal division is not read. `epochs` None never ends.
    """

    def __init__(
        self,
        source: Source,
        *,
        seed: int,
        shard_index: int = 0,
        shard_count: int = 1,
        epochs: int | None = None,
    ) -> None:
        if not 0 <= shard_index < shard_count:
            raise ValueError(f"shard_index must be in [0, shard_count={shard_count}), got {shard_index}")
        if not len(source):
            raise ValueError(f"{source} has no records")
        self._identity = {
            "name": source.name,
            "split": source.split,
            "records": len(source),
            "seed": seed,
            "shard_index": shard_index,
            "shard_count": shard_count,
            "epochs": epochs,
        }
        length = sys.maxsize if epochs is None else len(source) * epochs
        order = grain.MapDataset.source(_Epochs(source, seed, length))
        share = order[shard_index : length - length % shard_count : shard_count]
        # No threads: records are small and in the page cache.
        options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        self._items = iter(share.to_iter_dataset(options))

    def __iter__(self) -> Iterator[Problem | Question]:
        return self

    def __next__(self) -> Problem | Question:
        return next(self._items)

    def state(self) -> dict[str, Any]:
        """The cursor: what JSON can hold, before the next item."""
        return {**self._identity, "cursor": self._items.get_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues where `state()` was taken. ValueError where that was another stream."""
        for key, value in self._identity.items():
            if state.get(key) != value:
                raise ValueError(
                    f"the cursor belongs to a stream with {key}={state.get(key)!r}, this one has {value!r}"
                )
        self._items.set_state(state["cursor"])
