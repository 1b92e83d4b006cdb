"""The error that reading, checking or making a data set raises for a mistake outside the code."""

from pathlib import Path


class DatasetError(ValueError):
    """A data set cannot be read, is inconsistent, or was asked for wrongly; the text is one
    line."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))  # names and other libraries' texts have more


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """A file or folder of a data set does not exist; also a FileNotFoundError."""


def broken(file: str | Path, array: str, fact: str, remedy: str) -> DatasetError:
    """Returns the error for one array of a file, or of a data set in memory."""
    return DatasetError(f"{file}: {array}: {fact}; {remedy}")


def missing(file: str | Path, array: str, remedy: str) -> DatasetNotFoundError:
    return DatasetNotFoundError(f"{file}: {array}: the file does not exist; {remedy}")
