"""Data sets of problems and questions, prepared once from raw files and read by index. Nothing is downloaded.

    python -m rlanything_jax.data prepare --raw=FOLDER --out=FOLDER

prepares array_record files with tensorflow-datasets, without TensorFlow; `load` and `Loader` read them.
"""

from rlanything_jax.data.catalogue import DATA_SETS
from rlanything_jax.data.loading import Loader, Source, load
from rlanything_jax.data.raw import Rejected, read

__all__ = ["DATA_SETS", "Loader", "Rejected", "Source", "load", "read"]
