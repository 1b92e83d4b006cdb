"""Downloading with ogb, without a network: ogb's own functions are replaced."""

import builtins
import shutil
import sys
import types
import zipfile
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from pyg_batchgnn.data import DatasetError, DatasetNotFoundError, read_ogb
from pyg_batchgnn.data.ogb.facts import OGB_TABLES
from tests.support.tiny_datasets import NODES, write_ogb_csv


def install_ogb(monkeypatch: pytest.MonkeyPatch, download_url: Any) -> None:
    """Installs a package `ogb` without data set classes, in which every question fails."""
    url = types.ModuleType("ogb.utils.url")

    def extract_zip(path: str, folder: str) -> None:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)

    url.download_url, url.extract_zip = download_url, extract_zip  # type: ignore[attr-defined]
    for name, module in (("ogb", None), ("ogb.utils", None), ("ogb.utils.url", url)):
        monkeypatch.setitem(sys.modules, name, module or types.ModuleType(name))

    def ask(*_: object) -> str:
        raise AssertionError("a question was asked")

    monkeypatch.setattr(builtins, "input", ask)


def archive(folder: Path) -> Path:
    """OGB's archive of a made-up ogbn-arxiv: its top folder is called arxiv."""
    made, _ = write_ogb_csv(folder / "made", "ogbn-arxiv", "time")
    made.rename(made.with_name("arxiv"))
    return Path(shutil.make_archive(str(folder / "archive"), "zip", folder / "made"))


def test_downloads_unpacks_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = archive(tmp_path), []

    def download_url(url: str, folder: str) -> str:
        asked.append(url)
        return shutil.copy(made, Path(folder) / "arxiv.zip")

    install_ogb(monkeypatch, download_url)
    root = tmp_path / "new" / "root"
    assert read_ogb("ogbn-arxiv", root).num_nodes == NODES
    assert read_ogb("ogbn-arxiv", root).num_nodes == NODES
    assert asked == [OGB_TABLES["ogbn-arxiv"].url]
    assert [path.name for path in root.iterdir()] == ["ogbn_arxiv"]


def failing(error: BaseException) -> Any:
    def download_url(url: str, folder: str) -> str:
        (Path(folder) / "arxiv.zip").write_bytes(b"half")
        try:
            raise error
        except URLError:
            raise
        except BaseException:
            raise RuntimeError("Stopped downloading due to interruption.")  # noqa: B904 (as ogb does)

    return download_url


@pytest.mark.parametrize(
    "error", [URLError("no route to host"), OSError("disk full"), TypeError("no length")]
)
def test_a_failure_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    install_ogb(monkeypatch, failing(error))
    with pytest.raises(DatasetError) as caught:
        read_ogb("ogbn-arxiv", tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'ogbn_arxiv'}: ogbn-arxiv could not be downloaded from http")
    assert "unpack" in message and "\n" not in message
    assert not list(tmp_path.iterdir())


def test_ctrl_c_stays_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_ogb(monkeypatch, failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        read_ogb("ogbn-arxiv", tmp_path)


def test_a_broken_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download_url(url: str, folder: str) -> str:
        (Path(folder) / "arxiv.zip").write_bytes(b"<html>not found</html>")
        return str(Path(folder) / "arxiv.zip")

    install_ogb(monkeypatch, download_url)
    with pytest.raises(DatasetError, match="could not be downloaded"):
        read_ogb("ogbn-arxiv", tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_ogb_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(DatasetNotFoundError) as error:
        read_ogb("ogbn-papers100M", tmp_path)
    message = str(error.value)
    assert "pip install ogb" in message and OGB_TABLES["ogbn-papers100M"].url in message
    assert str(tmp_path / "ogbn_papers100M") in message
