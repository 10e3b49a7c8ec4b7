import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlanything_jax.data.raw import Rejected, read
from rlanything_jax.envs.code.problem import RecordError

RECORDS = [{"id": f"r{i}", "text": f"record {i}"} for i in range(3)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)


def convert(record: Mapping[str, Any]) -> SimpleNamespace:
    if "text" not in record:
        raise RecordError("text", "is missing")
    return SimpleNamespace(id=record["id"], text=record["text"].strip())


def split(path: Path) -> tuple[list[str], list[str]]:
    """(ids that were read, what was rejected)."""
    items = list(read(path, convert))
    rejected = [str(item) for item in items if isinstance(item, Rejected)]
    return [item.id for item in items if not isinstance(item, Rejected)], rejected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES.encode()),
        ("a.jsonl", LINES.replace("\n", "\n\n").rstrip().encode()),
        ("a.jsonl.gz", gzip.compress(LINES.encode())),
        ("a.json", json.dumps(RECORDS).encode()),
        ("a.json", json.dumps(RECORDS, indent=1).encode() + b"\n"),
        ("a.json.gz", gzip.compress(json.dumps(RECORDS).encode())),
    ],
)
def test_all_kinds_of_files_are_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert split(tmp_path / name) == (["r0", "r1", "r2"], [])


def test_a_line_file_cut_in_half(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text(LINES[:-8])
    read_ids, rejected = split(path)
    assert read_ids == ["r0", "r1"]
    assert len(rejected) == 1
    assert rejected[0].startswith("cut.jsonl, record 3, text: is not JSON, perhaps cut off")


def test_a_list_file_cut_in_half(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    whole = json.dumps(RECORDS)
    path.write_text(whole[:-8])
    read_ids, (rejected,) = split(path)
    assert read_ids == ["r0", "r1"]
    assert rejected.startswith("cut.json, record 3, text: is not JSON, perhaps cut off")
    path.write_text(whole[: whole.index(', {"id": "r2"')])
    assert split(path) == (["r0", "r1"], ["cut.json, record 3, whole record: the file is cut off here"])


def test_a_compressed_file_cut_in_half(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    # Random enough to take more than one block.
    lines = "".join(json.dumps({"id": str(i), "text": str(hash((i, "x")))}) + "\n" for i in range(2000))
    packed = gzip.compress(lines.encode())
    path.write_bytes(packed[: len(packed) // 2])
    read_ids, (rejected,) = split(path)
    assert 0 < len(read_ids) < 2000
    assert rejected.startswith(f"cut.jsonl.gz, record {len(read_ids) + 1}, ")
    path.write_bytes(packed[:-4])
    assert split(path)[0] == [str(i) for i in range(2000)]
    assert split(path)[1] == ["cut.jsonl.gz, record 2001, whole record: the compressed file is cut off here"]


def test_bad_records_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    bad = ['{"id": "x"}', "3", '{"id": "r0", "text": "again"}', '{"id": "y", "text": 5}', "not json", "\xff"]
    path.write_text(LINES + "\n".join(bad) + '\n{"id": "z", "text": "last"}\n', encoding="latin-1")
    read_ids, rejected = split(path)
    assert read_ids == ["r0", "r1", "r2", "z"]
    assert [line.partition(": ")[0] for line in rejected] == [
        "a.jsonl, record 4, text",
        "a.jsonl, record 5, whole record",
        "a.jsonl, record 6, id",
        "a.jsonl, record 7, whole record",
        "a.jsonl, record 8, whole record",
        "a.jsonl, record 9, whole record",
    ]
    assert "must be an object, got int" in rejected[1]
    assert "repeats 'r0'" in rejected[2]


def test_a_record_without_id_is_named_after_its_place(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n')
    assert split(path)[0] == ["train-1", "train-2"]


def test_a_json_file_that_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"id": "r0"}')
    assert split(path) == (
        [],
        [
            'a.json, record 1, whole record: the file must hold a list of records, it begins with \'{"id": "r0"}\''
        ],
    )
