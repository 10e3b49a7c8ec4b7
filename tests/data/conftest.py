import json
from pathlib import Path

import pytest

from rlanything_jax.data.builders import prepare


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hand-made raw files: 23 questions, 4 of MBPP's splits, and a bad record in each."""
    folder = tmp_path_factory.mktemp("raw")
    (folder / "gsm8k").mkdir()
    questions = [{"question": f"{i} + 1?", "answer": f"It is.\n#### {i + 1}"} for i in range(23)]
    lines = [json.dumps(record) for record in [*questions, {"question": "?", "answer": "none"}]]
    (folder / "gsm8k" / "train.jsonl").write_text("\n".join(lines))
    (folder / "gsm8k" / "test.jsonl").write_text(lines[0])
    (folder / "mbpp").mkdir()
    problems = [
        {
            "task_id": i,
            "text": f"Add {i}.",
            "code": "def f(x): ...",
            "test_list": [f"assert f({i}) == {i + i}"],
        }
        for i in (1, 10, 11, 510, 511, 600, 601, 974)
    ]
    problems.append({"task_id": 12, "text": "Nothing.", "code": "def f(x): ...", "test_list": []})
    (folder / "mbpp" / "mbpp.jsonl").write_text("\n".join(map(json.dumps, problems)))
    return folder


@pytest.fixture(scope="session")
def prepared(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    for name in ("gsm8k", "mbpp"):
        prepare(name, raw, folder)
    return folder
