"""Fixtures of the data room's tests."""

from pathlib import Path

import pytest

from pyg_batchgnn.data.places import DATA_VARIABLE, data_folders

NO_REAL_GRAPHS = f"no real graphs here: neither ../shared/data nor {DATA_VARIABLE} holds cora.npz"


@pytest.fixture
def real_graphs() -> Path:
    """The folder of the real graphs; skips, saying why, only where there is none."""
    for folder in data_folders(None):
        if (folder / "cora.npz").is_file():
            return folder
    pytest.skip(NO_REAL_GRAPHS)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, so that a test never sees the machine's own data sets."""
    folder = tmp_path / "nowhere"
    folder.mkdir()
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    return folder
