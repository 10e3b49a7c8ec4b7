"""What worlds need that read data sets."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def prepare_data(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Prepares a data set from the real files and returns the folder with all that were."""
    from rlanything_jax.data.builders import prepare

    folder = tmp_path_factory.mktemp("data")

    def prepared(name: str) -> Path:
        try:
            prepare(name, data, folder)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        return folder

    return prepared
