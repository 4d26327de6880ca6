"""Draws the loss curve of a training record: `python -m tests.models.plot FOLDER` -> FOLDER/loss.svg.
Needs matplotlib, which nothing else here does: `pip install matplotlib`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "afd"  # the same picture for the same data
from matplotlib import pyplot  # noqa: E402  # after the backend is chosen


def main(folder: Path) -> None:
    record = json.loads((folder / "training.json").read_text())
    steps = [point["step"] for point in record["curve"]]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(
        steps,
        [point["training"] for point in record["curve"]],
        label="training (prose and chat, with dropout)",
    )
    axes.plot(steps, [point["held_out"] for point in record["curve"]], label="held out (prose)")
    axes.set(xlabel="step", ylabel="loss, nats per token", title="Demo model")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / "loss.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
