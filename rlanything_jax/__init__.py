"""RLAnything in JAX: environment, policy and reward model trained together (arXiv 2602.02488)."""

__version__ = "0.1.0"
