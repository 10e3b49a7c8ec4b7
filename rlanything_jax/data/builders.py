"""Builders of tensorflow-datasets for the data sets of the catalogue. Works without TensorFlow.

A record is stored as one JSON text: reading it back costs one parse, where a feature for each field, with lists
of tests in it, would cost several times as much.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from rlanything_jax.data.catalogue import DATA_SETS, DataSet
from rlanything_jax.data.raw import Rejected, read

FILE_FORMAT = "array_record"


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Prepares one data set from raw files; `rejected` are the records that were left out."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Put the raw files in manual_dir; nothing is downloaded."
    code_path = None  # where checksums of downloads would be
    data_set: DataSet

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"file_format": FILE_FORMAT, **settings})
        self.rejected: dict[Rejected, None] = {}
        self._whole: dict[Path, list[Any]] = {}
        self.on_record: Callable[[], None] = lambda: None

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.data_set.title,
            features=tfds.features.FeaturesDict({"record": tfds.features.Text()}),
            homepage=self.data_set.homepage,
            citation=self.data_set.citation,
            license=self.data_set.licence,
            metadata=tfds.core.MetadataDict(rejected=[]),
            disable_shuffling=True,  # the order of the raw files
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[str, dict[str, str]]]]:
        paths = self.data_set.paths(Path(dl_manager.manual_dir))
        return {split: self._generate_examples(split, files) for split, files in paths.items()}

    def _generate_examples(self, split: str, files: list[Path]) -> Iterator[tuple[str, dict[str, str]]]:
        for path in files:
            for item in self._items(path):
                if isinstance(item, Rejected):
                    self.rejected[item] = None
                elif self.data_set.choose is None or self.data_set.choose(item.id) == split:
                    yield item.id, {"record": json.dumps(item.to_json(), ensure_ascii=False)}
                    self.on_record()
        self.info.metadata["rejected"] = [str(item) for item in self.rejected]

    def _items(self, path: Path) -> Iterable[Any]:
        if self.data_set.choose is None:
            return read(path, self.data_set.convert)
        if path not in self._whole:  # once for all splits
            self._whole[path] = list(read(path, self.data_set.convert))
        return self._whole[path]


# Classes register themselves with tensorflow-datasets, by name.
BUILDERS: dict[str, type[Builder]] = {
    name: type(
        "".join(map(str.capitalize, name.split("_"))),
        (Builder,),
        {
            "__module__": __name__,
            "name": name,
            "data_set": data_set,
            "VERSION": tfds.core.Version(data_set.version),
            "RELEASE_NOTES": {data_set.version: "First version."},
        },
    )
    for name, data_set in DATA_SETS.items()
}


def prepare(name: str, raw: Path, out: Path, *, on_record: Callable[[], None] = lambda: None) -> Builder:
    """Prepares the data set `name` from the files below `raw` in `out`, where it is kept if it exists.

    FileNotFoundError where there are no raw files. Calls `on_record` after each record.
    """
    DATA_SETS[name].paths(raw)
    builder = BUILDERS[name](data_dir=str(out))
    builder.on_record = on_record
    # It speaks of downloads, and draws bars of its own.
    tfds.disable_progress_bar()
    logging.getLogger("absl").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(manual_dir=str(raw), register_checksums=False)
        )
    return builder
