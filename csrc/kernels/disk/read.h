// Reads rows of a file.
#pragma once

#include <cstdint>

#include "kernels/disk/file.h"
#include "kernels/disk/runs.h"

namespace pyg_batchgnn {

struct RowPlaces {
  char* out;             // rows of the size in the file
  const int64_t* place;  // [count], the row of `out` for each row; null: 0, 1, 2, ...
};

struct ReadResult {
  int64_t bytes = 0;  // of the operations, which are whole blocks
  int64_t operations = 0;
  int64_t error = 0;     // errno, or kFileEnds
  int64_t error_at = 0;  // the byte of the file that could not be read
};

constexpr int64_t kFileEnds = -1;

// Reads rows with up to `depth` operations under way, and copies each to its place. All but the
// system calls is done by the calling thread. After an error no operation is begun and those under
// way are ended: some rows are missing, and the error is the one at the lowest byte. Throws
// std::bad_alloc, or std::system_error as ReadQueue does.
ReadResult read_rows(ReadQueue& file, int64_t depth, const FileRows& rows, const RunRules& rules,
                     const RowPlaces& places);

// The same by a thread for each of the operations under way, which live for the call.
ReadResult read_rows(PlainFile& file, int64_t depth, const FileRows& rows, const RunRules& rules,
                     const RowPlaces& places);

}  // namespace pyg_batchgnn
