"""The error that reading, checking or making a data set raises for a mistake outside the code."""

from pathlib import Path


class DatasetError(ValueError):
    """A data set cannot be read, is inconsistent, or was asked for wrongly.

    The message is one line.
    """


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """A file or folder of a data set does not exist; also a FileNotFoundError."""


def broken(file: str | Path, array: str, fact: str, remedy: str) -> DatasetError:
    """Makes the error for one array of one file.

    Args:
        file: the file (or, for data that never were in a file, the data set's name).
        array: the array in it.
        fact: what is wrong, with the value seen.
        remedy: what the user can do about it.
    """
    return DatasetError(f"{file}: {array}: {fact}; {remedy}")


def missing(file: str | Path, array: str, remedy: str) -> DatasetNotFoundError:
    """Makes the error for a file that is not there, though the array it should hold is needed."""
    return DatasetNotFoundError(f"{file}: {array}: the file does not exist; {remedy}")
