"""Arrays and JSON in files, written durably and read without trust, for all kinds of folders.

`ArrayPromise` is what META.json says about one array. `write_tensor` makes it; `map_tensor` and
`verify_tensor` compare the file with it. These names are for other rooms.
"""

from pyg_batchgnn.data.errors import broken as broken
from pyg_batchgnn.data.files.durable import begin_folder as begin_folder
from pyg_batchgnn.data.files.durable import file_sha256 as file_sha256
from pyg_batchgnn.data.files.durable import new_file as new_file
from pyg_batchgnn.data.files.durable import read_json as read_json
from pyg_batchgnn.data.files.durable import refuse_existing_path as refuse_existing_path
from pyg_batchgnn.data.files.durable import rename_whole as rename_whole
from pyg_batchgnn.data.files.durable import sync_file as sync_file
from pyg_batchgnn.data.files.durable import sync_folder as sync_folder
from pyg_batchgnn.data.files.durable import sync_tree as sync_tree
from pyg_batchgnn.data.files.durable import system_message as system_message
from pyg_batchgnn.data.files.durable import write_json as write_json
from pyg_batchgnn.data.files.durable import writing as writing
from pyg_batchgnn.data.files.journal import Journal as Journal
from pyg_batchgnn.data.files.journal import Made as Made
from pyg_batchgnn.data.files.journal import making as making
from pyg_batchgnn.data.files.meta_file import MetaFormat as MetaFormat
from pyg_batchgnn.data.files.meta_file import promises as promises
from pyg_batchgnn.data.files.npy import META_FILE as META_FILE
from pyg_batchgnn.data.files.npy import ArrayPromise as ArrayPromise
from pyg_batchgnn.data.files.npy import EdgeAppender as EdgeAppender
from pyg_batchgnn.data.files.npy import NpyAppender as NpyAppender
from pyg_batchgnn.data.files.npy import as_tensor as as_tensor
from pyg_batchgnn.data.files.npy import map_tensor as map_tensor
from pyg_batchgnn.data.files.npy import npy_header as npy_header
from pyg_batchgnn.data.files.npy import open_npy as open_npy
from pyg_batchgnn.data.files.npy import verify_tensor as verify_tensor
from pyg_batchgnn.data.files.npy import write_tensor as write_tensor
