// Which parts of a file are read for a list of rows (docs/design.md, section 10).
//
// A row covers whole blocks. Rows are read together, as one run, where at most `gap` bytes of whole
// blocks lie between them. A run longer than `largest` is cut into operations of that size.
#pragma once

#include <cstdint>

namespace pyg_batchgnn {

// Rows of one size in a file, one behind the other from `offset`.
struct FileRows {
  int64_t offset;      // of row 0
  int64_t row_bytes;   // > 0
  const int64_t* row;  // [count], ascending; a row may come several times
  int64_t count;

  int64_t begin(int64_t i) const { return offset + row[i] * row_bytes; }
  int64_t end(int64_t i) const { return begin(i) + row_bytes; }
};

struct RunRules {
  int64_t block;    // a power of two
  int64_t gap;      // bytes, >= 0
  int64_t largest;  // bytes of an operation, a multiple of `block`

  int64_t block_begin(int64_t byte) const { return byte & -block; }
  int64_t block_end(int64_t byte) const { return (byte + block - 1) & -block; }
};

// Bytes that are read with one request.
struct FileOperation {
  int64_t begin, end;  // whole blocks
  int64_t needed;      // bytes behind this one belong to no row
  int64_t first;       // position in the list of the first row with a byte in it
};

// Gives the operations of a list of rows, one after the other.
class RunCutter {
 public:
  RunCutter(const FileRows& rows, const RunRules& rules) : rows_(rows), rules_(rules) {}

  // Returns false if there are no more.
  bool next(FileOperation& operation);

 private:
  void open_run();

  const FileRows rows_;
  const RunRules rules_;
  int64_t at_ = 0, end_ = 0;  // what is left of the run
  int64_t needed_ = 0;        // the end of its last row
  int64_t first_ = 0;         // the first row that ends behind at_
  int64_t next_row_ = 0;      // the first row behind the run
};

}  // namespace pyg_batchgnn
