"""The error that reading, checking or making a data set raises for a mistake outside the code."""

from pathlib import Path


class DatasetError(ValueError):
    """A data set cannot be read, made or used as asked. The message is one line with the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))  # names and other libraries' texts have more


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """A file or folder of a data set does not exist; also a FileNotFoundError."""


def broken(file: str | Path, array: str, fact: str, remedy: str) -> DatasetError:
    """Makes the error for an array in ``file``, or in the data set of that name."""
    return DatasetError(f"{file}: {array}: {fact}; {remedy}")


def missing(file: str | Path, array: str, remedy: str) -> DatasetNotFoundError:
    return DatasetNotFoundError(f"{file}: {array}: the file does not exist; {remedy}")
