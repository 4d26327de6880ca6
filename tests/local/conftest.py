from __future__ import annotations

import pytest
from tests.local.model import Checkpoint, checkpoint


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return checkpoint(tmp_path_factory.mktemp("model") / "small")
