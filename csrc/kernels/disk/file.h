// A file as the reader of rows sees it: a queue of requests (io_uring), or requests that wait.
#pragma once

#include <cstdint>
#include <memory>

namespace pyg_batchgnn {

// Reads that wait. Threads may share it.
class PlainFile {
 public:
  virtual ~PlainFile() = default;

  // Returns the bytes that were read, 0 behind the end of the file, or the negative errno.
  virtual int64_t read(char* memory, int64_t bytes, int64_t offset) = 0;
};

struct ReadEnd {
  int64_t slot;
  int64_t result;  // as PlainFile::read returns it
};

// Reads that are under way at the same time. For one thread.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;

  // Begins to read. The slot names the request until it has ended.
  virtual void start(int64_t slot, char* memory, int64_t bytes, int64_t offset) = 0;

  // Waits for one of the requests. Throws std::system_error if the queue does not work; requests
  // may then write to their memory at any time.
  virtual ReadEnd wait() = 0;
};

std::unique_ptr<PlainFile> plain_file(int file);

// Returns null where the system has no such queue or forbids it. `depth`: the number of slots.
std::unique_ptr<ReadQueue> read_queue(int file, int64_t depth);

// Returns the alignment that direct reads of the file need, of memory as of offsets: a power of two
// of at least 512. 4096 where the system does not tell, and 0 if it tells that there are none.
int64_t direct_block(int file);

}  // namespace pyg_batchgnn
