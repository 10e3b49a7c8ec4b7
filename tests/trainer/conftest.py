"""The train step takes parameters as they are stacked."""

import pytest

from rlanything_jax.models import Params


@pytest.fixture(scope="session")
def params(stacked: Params) -> Params:
    return stacked
