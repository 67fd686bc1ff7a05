"""Serialisation of the tests that start containers."""

import pytest


@pytest.fixture(autouse=True)
def _one_at_a_time(engine_alone: None) -> None: ...
