import json
from pathlib import Path

import pytest

from rlanything_jax.data import Loader, Source, load
from rlanything_jax.data.builders import BUILDERS, prepare
from rlanything_jax.envs.code.problem import Problem, Test

EMPTY = type("Empty", (), {"__len__": lambda self: 0, "name": "none", "split": "test"})()


@pytest.fixture(scope="module")
def source(prepared: Path) -> Source:
    return load("gsm8k", "train", prepared)


def numbers(loader: Loader, count: int | None = None) -> list[int]:
    """The answers of the next `count` questions, or of all that are left."""
    items = loader if count is None else (next(loader) for _ in range(count))
    return [int(item.answer) for item in items]


def test_items_come_in_the_order_of_the_file(source: Source) -> None:
    assert len(source) == 23
    assert [source[i].answer for i in range(23)] == [str(i + 1) for i in range(23)]
    assert source[4].statement == "4 + 1?"


def test_problems_come_back_whole(prepared: Path) -> None:
    problem = load("mbpp", "test", prepared)[1]
    assert isinstance(problem, Problem)
    assert problem.id == "mbpp/510"
    assert problem.tests == (Test("f(510)", "1020", public=True),)


def test_mbpp_has_the_splits_of_its_paper(prepared: Path) -> None:
    ids = {
        split: [source[i].id for i in range(len(source))]
        for split in ("prompt", "test", "validation", "train")
        for source in [load("mbpp", split, prepared)]
    }
    assert ids == {
        "prompt": ["mbpp/1", "mbpp/10"],
        "test": ["mbpp/11", "mbpp/510"],
        "validation": ["mbpp/511", "mbpp/600"],
        "train": ["mbpp/601", "mbpp/974"],
    }


def test_rejected_records_are_counted_and_named(prepared: Path) -> None:
    assert load("mbpp", "test", prepared).rejected == [
        "mbpp.jsonl, record 9, test_list: the problem has no tests"
    ]
    (reason,) = load("gsm8k", "test", prepared).rejected
    assert reason == "train.jsonl, record 24, answer: holds no final answer after '####' or in a box"


def test_licence_citation_and_version_are_in_the_metadata(prepared: Path) -> None:
    info = BUILDERS["mbpp"](data_dir=str(prepared)).info
    assert info.redistribution_info.license == "CC-BY-4.0"
    assert "2108.07732" in info.citation
    assert str(info.version) == "1.0.0"
    assert info.file_format.value == "array_record"
    assert json.loads((prepared / "mbpp" / "1.0.0" / "dataset_info.json").read_text())["name"] == "mbpp"


def test_an_epoch_has_every_record_once_in_another_order(source: Source) -> None:
    loader = Loader(source, seed=1, epochs=2)
    first, second = numbers(loader, 23), numbers(loader)
    assert sorted(first) == sorted(second) == list(range(1, 24))
    assert first != second
    assert numbers(Loader(source, seed=1, epochs=2)) == first + second
    assert numbers(Loader(source, seed=2, epochs=1)) != first


def test_hosts_share_a_stream(source: Source) -> None:
    whole = numbers(Loader(source, seed=3), 40)
    shares = [numbers(Loader(source, seed=3, shard_index=i, shard_count=4), 10) for i in range(4)]
    assert [shares[k % 4][k // 4] for k in range(40)] == whole


def test_hosts_have_shares_of_equal_length(source: Source) -> None:
    shares = [numbers(Loader(source, seed=3, shard_index=i, shard_count=4, epochs=1)) for i in range(4)]
    assert [len(share) for share in shares] == [5, 5, 5, 5]  # of 23
    assert len({number for share in shares for number in share}) == 20


@pytest.mark.parametrize("taken", [0, 1, 22, 23, 24, 60])
def test_a_restored_cursor_continues_exactly(source: Source, taken: int) -> None:
    # Resuming restarted the stream, and the saved position stood still.
    loader = Loader(source, seed=5, shard_index=1, shard_count=2)
    numbers(loader, taken)
    state = json.loads(json.dumps(loader.state()))
    expected = numbers(loader, 30)
    for fresh in (loader, Loader(source, seed=5, shard_index=1, shard_count=2)):
        fresh.restore(state)
        assert fresh.state() == state
        assert numbers(fresh, 30) == expected
        assert fresh.state() != state


def test_a_cursor_of_another_stream_is_refused(source: Source) -> None:
    state = Loader(source, seed=5).state()
    with pytest.raises(ValueError, match="a stream with seed=5, this one has 6"):
        Loader(source, seed=6).restore(state)
    with pytest.raises(ValueError, match="a stream with shard_count=1, this one has 2"):
        Loader(source, seed=5, shard_count=2).restore(state)


def test_errors_name_the_fix(prepared: Path, raw: Path, tmp_path: Path, source: Source) -> None:
    with pytest.raises(ValueError, match="no data set 'nothing'; there are humaneval, mbpp"):
        load("nothing", "train", prepared)
    with pytest.raises(ValueError, match="gsm8k has no split 'valid'; there are .*train"):
        load("gsm8k", "valid", prepared)
    with pytest.raises(FileNotFoundError, match="prepare --raw=FOLDER --out=.* --only=humaneval"):
        load("humaneval", "test", prepared)
    with pytest.raises(FileNotFoundError, match=r"looked for humaneval/HumanEval.jsonl\*"):
        prepare("humaneval", raw, tmp_path)
    with pytest.raises(ValueError, match=r"shard_index must be in \[0, shard_count=2\), got 2"):
        Loader(source, seed=0, shard_index=2, shard_count=2)
    with pytest.raises(ValueError, match="has no records"):
        Loader(EMPTY, seed=0)
