"""The report of a run: one HTML file that needs nothing else, opened from disk, in light and dark.

Every text of a run (model output above all) is escaped, and the page's policy runs no script but its own.
"""

import base64
import hashlib
import json
import os
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlanything_jax.report.charts import sparkline
from rlanything_jax.report.curves import curves
from rlanything_jax.report.families import lineage
from rlanything_jax.report.read import Run, flatten, read_run, series
from rlanything_jax.report.summary import HEADLINES, before_after
from rlanything_jax.report.text import shown
from rlanything_jax.report.trajectories import samples

COLORS = {"eval": 1, "rollout": 1, "judge": 2, "tasks": 3}  # a part of the system and its colour


def write_report(workdir: str | Path) -> Path:
    """Write WORKDIR/report.html (atomically) and return its path. Errors as in `read_run`."""
    path = Path(workdir) / "report.html"
    page = render(read_run(workdir))
    partial = path.with_suffix(".html.partial")
    partial.write_text(page, encoding="utf-8", errors="replace")
    os.replace(partial, path)
    return path


def render(run: Run) -> str:
    """The HTML of `run`. Its size is bounded whatever the length of the run."""
    style = files("rlanything_jax.report").joinpath("page.css").read_text(encoding="utf-8")
    script = files("rlanything_jax.report").joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    name = escape(run.folder.resolve().name)
    sections = {
        "Learning": curves(run.metrics),
        "Trajectories": samples(run.trajectories),
        "Tasks": lineage(run.events, run.config),
        "Config": _config(run.config),
    }
    present = {title: html for title, html in sections.items() if html}
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in present)
    body = "".join(
        f'<section class="main" id="{title.lower()}"><h2>{title}</h2>'
        f"{INTRODUCTIONS.get(title, '')}{html}</section>"
        for title, html in present.items()
    )
    unread = f" {run.unread} lines of the run directory could not be read." if run.unread else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        f"content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">"
        f"<title>{name}</title><style>{style}</style></head><body>"
        f'<header class="top"><div><h1>{name}</h1><p>{_subtitle(run)}</p></div><nav>{links}'
        '<button id="theme" type="button" hidden>Dark</button></nav></header>'
        f'<main><ul class="tiles">{_tiles(run)}</ul>{body}</main>'
        f"<footer>Written by rlanything_jax.report from metrics.jsonl, tasks.jsonl and a sample of the "
        f'trajectories.{unread}</footer><div id="tip" role="status"></div>'
        f"<script>{script}</script></body></html>\n"
    )


INTRODUCTIONS = {
    "Trajectories": "<p>One line a step: the action, the judge’s votes, the truth where the world can tell "
    "(a planner’s label), the reward R and the advantage A. Point at a vote for its reasons; open a step for "
    "everything.</p>",
    "Tasks": "<p>Tasks that are too easy or too hard are rewritten from the judge’s critiques. A rewrite "
    "stays only if its measured success rate moved the right way and landed in range.</p>",
}


def _subtitle(run: Run) -> str:
    done = len(run.metrics)
    planned = run.config.get("iterations")
    world = run.config.get("world")
    parts = [escape(str(world["name"]))] if isinstance(world, dict) and world.get("name") else []
    if isinstance(planned, int) and planned > done:
        parts.append(f"iteration {done} of {planned}, not finished")
    else:
        parts.append(f"{done} iteration{'' if done == 1 else 's'}")
    seconds = sum(series(run.metrics, "time/iteration_s")[1])
    if seconds:
        parts.append(f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{max(1, round(seconds / 60))} min")
    if "seed" in run.config:
        parts.append(f"seed {escape(str(run.config['seed']))}")
    return " · ".join(parts)


def _tiles(run: Run) -> str:
    tiles = []
    for headline in HEADLINES:
        found = before_after(run.metrics, headline.key)
        if found is None:
            continue
        before, after, k = found
        pattern = headline.pattern
        if headline.key == "tasks/accepted_total":
            tried = sum(series(run.metrics, "tasks/proposed")[1])
            context = f"of {tried:.0f} proposed" if tried else ""
        else:
            change = (after - before) * headline.better
            verdict = "good" if change > 0 else "bad" if change < 0 else "none"
            sign = "+" if after >= before else "−"
            context = (
                f"from {pattern.format(before)} "
                f'<b class="{verdict}">{sign}{pattern.format(abs(after - before)).replace("%", " pt")}</b>'
            )
        mean = f' title="means of the first and the last {k} iterations"' if k > 1 else ""
        line = sparkline(series(run.metrics, headline.key)[1], color=COLORS[headline.key.split("/")[0]])
        tiles.append(
            f"<li{mean}><h2>{headline.label}</h2><p><strong>{pattern.format(after)}</strong>{line}</p><small>{context}</small></li>"
        )
    return "".join(tiles)


def _config(config: dict[str, Any]) -> str:
    if not config:
        return ""
    flat = flatten(config)
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(key)}</code></th>'
        f"<td><code>{shown(_plain(value), 300)}</code></td></tr>"
        for key, value in list(flat.items())[:1000]
    )
    table = f"<table><tbody>{rows}</tbody></table>"
    return f'<details class="config"><summary>{len(flat)} settings</summary>{table}</details>'


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
