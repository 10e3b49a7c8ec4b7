"""Generation: sessions over a KV cache, and branches over a shared trunk."""

from rlanything_jax.sampler.branches import decode_branches
from rlanything_jax.sampler.session import (
    Sampled,
    Sampling,
    Sessions,
    bucket,
    decode,
    extend,
    forget,
    new_sessions,
    pad_rows,
    select,
)

__all__ = [
    "Sampled",
    "Sampling",
    "Sessions",
    "bucket",
    "decode",
    "decode_branches",
    "extend",
    "forget",
    "new_sessions",
    "pad_rows",
    "select",
]
