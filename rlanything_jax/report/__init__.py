"""Looking at a run: the HTML report, a picture for the README, the live terminal line, TensorBoard events."""

from rlanything_jax.report.display import Display
from rlanything_jax.report.page import render, write_report
from rlanything_jax.report.picture import learning_picture
from rlanything_jax.report.read import Run, read_run

__all__ = ["Display", "Run", "learning_picture", "read_run", "render", "write_report"]
