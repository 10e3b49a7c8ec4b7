"""The HTML report: complete, self-contained, safe with hostile text, bounded, drawn from partial runs."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rlanything_jax.report.__main__ import main
from rlanything_jax.report.curves import curves
from rlanything_jax.report.page import write_report

HOSTILE = "</script></svg><script>alert(1)</script><img src=x onerror=alert(2)>' \" onclick=alert(3) \udc80"


class Elements(HTMLParser):
    """Collects (tag, attributes) and checks that tags nest."""

    VOID = {"meta", "img", "link", "br", "input"}

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def rendered(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8")


def poison(folder: Path, text: str) -> None:
    """Replace every free text of the run by `text`."""

    def worse(value: object) -> object:
        if isinstance(value, dict):
            return {key: value[key] if key in ("event", "kind") else worse(value[key]) for key in value}
        if isinstance(value, list):
            return [worse(inner) for inner in value]
        return value + text if isinstance(value, str) else value

    for path in [folder / "tasks.jsonl", *sorted((folder / "trajectories").iterdir())]:
        rows = [worse(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = worse(json.loads((folder / "config.json").read_text()))
    config[text] = text
    (folder / "config.json").write_text(json.dumps(config))


def test_every_section_is_there(run_folder: Path) -> None:
    page = rendered(run_folder)
    headings = set(re.findall(r"<h[1-4]>([^<]*)</h[1-4]>", page))
    assert {
        "demo",
        "Held-out success",
        "OOD success",
        "Judge balanced accuracy",
        "Judge AUC",
        "Accepted tasks",
    } <= headings
    assert {"Policy", "Judge", "Tasks", "Learning", "Trajectories", "Config", "Early", "Late"} <= headings
    assert {"Success", "Inadmissible actions", "Importance ratio", "Time of an iteration"} <= headings
    assert "Sampler–trainer gap" in headings and "policy/entropy" in page
    assert "feedback.estimator" in page and "40 iterations" in page
    Elements(page)


def test_nothing_is_loaded_and_only_its_own_script_may_run(run_folder: Path) -> None:
    found = Elements(rendered(run_folder)).found
    assert not [a for _, a in found if "src" in a or a.get("href", "#")[0] != "#"]
    page = rendered(run_folder)
    assert (
        "url(" not in page
        and "@import" not in page
        and "://" not in page.replace("http://www.w3.org/2000/svg", "")
    )
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    policy = next(a["content"] for tag, a in found if tag == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_text_of_a_run_cannot_inject_markup(run_folder: Path) -> None:
    clean = Elements(rendered(run_folder)).found
    poison(run_folder, HOSTILE)
    page = rendered(run_folder)
    found = Elements(page).found
    assert [tag for tag, _ in found].count("script") == 1
    assert not [a for _, a in found if any(name.startswith("on") for name in a)]
    assert {tag for tag, _ in found} == {tag for tag, _ in clean}
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("text", [' "quoted" words & more' * 40, '"' * 900])
def test_size_is_bounded(run_maker: Callable[..., Path], tmp_path: Path, text: str) -> None:
    folder = run_maker(tmp_path / "long", iterations=300)
    poison(folder, text)
    assert write_report(folder).stat().st_size < 3_000_000


def test_a_run_of_one_iteration_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"iteration": 0, "rollout/success": 0.25, "time/iteration_s": 3.0}\n'
    )
    page = rendered(tmp_path)
    Elements(page)
    assert "1 iteration" in page and "Nothing logged yet" in page
    assert 'id="trajectories"' not in page and 'id="tasks"' not in page and 'id="config"' not in page


def test_a_run_still_going_says_so(run_maker: Callable[..., Path], tmp_path: Path) -> None:
    folder = run_maker(tmp_path / "going", iterations=12)
    path = folder / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]) + '{"iteration": 5, "ro')
    page = rendered(folder)
    assert "iteration 5 of 12, not finished" in page
    assert "1 line" in page and "could not be read" in page


@pytest.mark.parametrize("rollout", [5.0, 4.0])
def test_environment_time_is_counted_once(rollout: float) -> None:
    """1 s in environments: inside a rollout of 5 s in an iteration of 6 s, beside a rollout of 4 s."""
    times = {"rollout": rollout, "env": 1.0, "train": 1.0, "iteration": 6.0}
    html = curves([{"iteration": i} | {f"time/{name}_s": s for name, s in times.items()} for i in range(3)])
    assert re.search(r'<th scope="row">rollout</th>.*?<td>4 s</td><td>67%</td>', html)
    assert "other" not in re.findall(r'<th scope="row">(\w+)</th>', html)


def test_command_line(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--workdir={run_folder}"]) == 0
    assert capsys.readouterr().out.strip() == str(run_folder / "report.html")
    assert main([f"--workdir={tmp_path / 'absent'}"]) == 1
    assert f"error: {tmp_path / 'absent'} is not a run directory" in capsys.readouterr().err
