"""Arrays and JSON in files, written durably and read without trust, for all that has folders.

`ArrayPromise` is what a folder's META.json says of one array. `write_tensor` makes it, `map_tensor`
and `verify_tensor` compare a file with it.
"""

from pyg_batchgnn.data.errors import broken, missing
from pyg_batchgnn.data.files.durable import (
    begin_folder,
    check_sha256,
    file_sha256,
    new_file,
    read_json,
    refuse_existing_path,
    rename_whole,
    sync_file,
    sync_folder,
    sync_tree,
    system_message,
    write_bytes,
    write_json,
    writing,
)
from pyg_batchgnn.data.files.journal import Journal, Made, making
from pyg_batchgnn.data.files.meta_file import MetaFormat, promises
from pyg_batchgnn.data.files.npy import (
    META_FILE,
    ArrayPromise,
    EdgeAppender,
    NpyAppender,
    NpyHeader,
    as_tensor,
    check_size,
    map_tensor,
    npy_header,
    open_npy,
    promise_of,
    read_header,
    verify_tensor,
    write_tensor,
)

__all__ = [
    "META_FILE",
    "ArrayPromise",
    "EdgeAppender",
    "Journal",
    "Made",
    "MetaFormat",
    "NpyAppender",
    "NpyHeader",
    "as_tensor",
    "begin_folder",
    "broken",
    "check_sha256",
    "check_size",
    "file_sha256",
    "making",
    "map_tensor",
    "missing",
    "new_file",
    "npy_header",
    "open_npy",
    "promise_of",
    "promises",
    "read_header",
    "read_json",
    "refuse_existing_path",
    "rename_whole",
    "sync_file",
    "sync_folder",
    "sync_tree",
    "system_message",
    "verify_tensor",
    "write_bytes",
    "write_json",
    "write_tensor",
    "writing",
]
