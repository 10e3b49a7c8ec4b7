"""Generation: sessions over a KV cache, and branches over a shared trunk."""

from rlanything_jax.sampler.branches import decode_branches
from rlanything_jax.sampler.draw import Sampling
from rlanything_jax.sampler.session import (
    Sampled,
    Sessions,
    bucket,
    decode,
    extend,
    forget,
    new_sessions,
    pad_rows,
    place,
    rewind,
    select,
)
from rlanything_jax.sampler.slots import Buckets, Response, Slots

__all__ = [
    "Buckets",
    "Response",
    "Sampled",
    "Sampling",
    "Sessions",
    "Slots",
    "bucket",
    "decode",
    "decode_branches",
    "extend",
    "forget",
    "new_sessions",
    "pad_rows",
    "place",
    "rewind",
    "select",
]
