"""The paper's claims as one reproducible experiment: `python -m benchmarks.claims`."""
