#include "kernels/gather.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/parallel.h"
#include "kernels/prefetch.h"
#include "kernels/simd/decode.h"

namespace pyg_batchgnn {
namespace {

constexpr int64_t kBytesAhead = 4096;     // bytes of rows between prefetch and use
constexpr int64_t kLine = 64;             // bytes that a prefetch brings
constexpr int64_t kGrainBytes = 1 << 20;  // fewer bytes do not pay for a thread

// The index of rows that are copied in order.
struct InOrder {
  int64_t operator[](int64_t i) const { return i; }
};

// `Index` is a pointer to row numbers, or InOrder.
template <class Index>
struct TableRows {
  const char* table;
  int64_t row_bytes, stride_bytes;
  Index index;

  const char* at(int64_t i) const { return table + static_cast<int64_t>(index[i]) * stride_bytes; }
};

inline void prefetch_row(const char* row, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += kLine) prefetch_line(row + byte);
  prefetch_line(row + bytes - 1);
}

// Copies scalars and other narrow rows of a fixed size with one load and one store.
template <class Word, class Rows>
void gather_words(const Rows& rows, int64_t begin, int64_t end, const RowsOut& out) {
  constexpr int64_t kAhead = 64;
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) prefetch_line(rows.at(i + kAhead));
    std::memcpy(out.at(i), rows.at(i), sizeof(Word));
  }
}

// Returns whether wide rows are prefetched. On an Intel Xeon 553,134 rows of 400 bytes took 60 ms
// with prefetches, and 49 in torch's index_select, which is this loop without them.
bool prefetches_wide_rows() {
#if defined(__x86_64__)
  static const bool pays = !__builtin_cpu_is("intel");
  return pays;
#else
  return true;
#endif
}

template <class Rows>
void gather_wide(const Rows& rows, int64_t begin, int64_t end, const RowsOut& out) {
  const int64_t ahead = std::clamp<int64_t>(kBytesAhead / rows.row_bytes, 2, 64);
  const int64_t last = prefetches_wide_rows() ? end - ahead : begin;  // where prefetching ends
  for (int64_t i = begin; i < end; ++i) {
    if (i < last) prefetch_row(rows.at(i + ahead), rows.row_bytes);
    std::memcpy(out.at(i), rows.at(i), static_cast<size_t>(rows.row_bytes));
  }
}

template <class Rows>
void gather_range(const Rows& rows, int64_t begin, int64_t end, const RowsOut& out) {
  switch (rows.row_bytes) {
    case 0:
      return;
    case 1:
      return gather_words<uint8_t>(rows, begin, end, out);
    case 2:
      return gather_words<uint16_t>(rows, begin, end, out);
    case 4:
      return gather_words<uint32_t>(rows, begin, end, out);
    case 8:
      return gather_words<uint64_t>(rows, begin, end, out);
    default:
      return gather_wide(rows, begin, end, out);
  }
}

// `least_bytes` is what a row takes at least from memory.
template <class Rows>
void gather(const Rows& rows, int64_t least_bytes, int64_t count, const RowsOut& out, int64_t threads) {
  const int64_t grain = kGrainBytes / std::max(rows.row_bytes, least_bytes);
  run_ranges(count, grain, threads, [&](int64_t begin, int64_t end) { gather_range(rows, begin, end, out); });
}

}  // namespace

template <class Index>
void gather_rows(const char* table, int64_t row_bytes, int64_t stride_bytes, const Index* index,
                 int64_t count, const RowsOut& out, int64_t threads) {
  gather(TableRows<const Index*>{table, row_bytes, stride_bytes, index}, kLine, count, out, threads);
}

template void gather_rows(const char*, int64_t, int64_t, const int32_t*, int64_t, const RowsOut&, int64_t);
template void gather_rows(const char*, int64_t, int64_t, const int64_t*, int64_t, const RowsOut&, int64_t);

void copy_rows(const char* table, int64_t row_bytes, int64_t stride_bytes, int64_t count, const RowsOut& out,
               int64_t threads) {
  gather(TableRows<InOrder>{table, row_bytes, stride_bytes, {}}, sizeof(int64_t), count, out, threads);
}

void gather_either(const EitherRows& rows, int64_t count, char* out, int64_t threads) {
  gather(rows, kLine, count, {out, rows.row_bytes}, threads);
}

void move_rows(const char* from, const int64_t* from_row, char* to, const int64_t* to_row, int64_t count,
               int64_t row_bytes, int64_t threads) {
  constexpr int64_t kAhead = 16;
  run_ranges(count, kGrainBytes / std::max(row_bytes, kLine), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        prefetch_line(from + from_row[i + kAhead] * row_bytes);
        prefetch_line(to + to_row[i + kAhead] * row_bytes);
      }
      std::memcpy(to + to_row[i] * row_bytes, from + from_row[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

namespace {

// Larger results would leave the caches before they are read.
constexpr int64_t kStreamedBytes = 8 << 20;

template <class Out, class Index>
struct DecodedRows {
  TableRows<Index> rows;
  Decoding decoding;
  const RowsOut& out;
  bool streamed;

  const Code* codes(int64_t i) const { return reinterpret_cast<const Code*>(rows.at(i)); }
  Out* to(int64_t i) const { return reinterpret_cast<Out*>(out.at(i)); }

  // A prefetch waits for its page. Those of several rows together wait for all pages at once.
  void range(int64_t begin, int64_t end) const {
    const int64_t ahead = std::clamp<int64_t>(kBytesAhead / rows.row_bytes, 2, 64);
    int64_t i = begin;
    for (; i < end && i % kDecodedRows != 0; ++i) decode_row(codes(i), decoding, rows.row_bytes, to(i));
    for (; i + kDecodedRows <= end; i += kDecodedRows) {
      const int64_t last = std::min(i + ahead + kDecodedRows, end);
      for (int64_t j = i + ahead; j < last; ++j) prefetch_row(rows.at(j), rows.row_bytes);
      const Code* from[kDecodedRows];
      for (int r = 0; r < kDecodedRows; ++r) from[r] = codes(i + r);
      if constexpr (std::is_same_v<Out, float>) {
        if (streamed) {
          stream_rows(from, decoding, rows.row_bytes, to(i));
          continue;
        }
      }
      decode_rows(from, decoding, rows.row_bytes, to(i),
                  out.stride_bytes / static_cast<int64_t>(sizeof(Out)));
    }
    for (; i < end; ++i) decode_row(codes(i), decoding, rows.row_bytes, to(i));
    if (streamed) end_rows();
  }
};

template <class Out, class Index>
void gather_as(const Matrix& table, int64_t columns, Index index, int64_t count, const RowsOut& out,
               int64_t threads) {
  const int64_t bytes = columns * static_cast<int64_t>(sizeof(Out));
  const bool lines = columns % 4 == 0 && out.stride_bytes == bytes &&
                     reinterpret_cast<uintptr_t>(out.data) % static_cast<uintptr_t>(kLine) == 0;
  const DecodedRows<Out, Index> rows{
      {static_cast<const char*>(table.data), columns, table.stride, index},
      table.decoding,
      out,
      std::is_same_v<Out, float> && lines && columns <= kStreamedColumns && count * bytes >= kStreamedBytes};
  run_ranges(count, kGrainBytes / std::max(bytes, kLine), threads,
             [&](int64_t begin, int64_t end) { rows.range(begin, end); });
}

}  // namespace

void gather_decoded(const Matrix& table, int64_t columns, Integers index, int64_t count, const RowsOut& out,
                    Element element, int64_t threads) {
  if (columns == 0) return;
  const auto gather_by = [&](auto rows) {
    if (element == Element::kBFloat16) {
      return gather_as<Bfloat16>(table, columns, rows, count, out, threads);
    }
    gather_as<float>(table, columns, rows, count, out, threads);
  };
  if (!index) return gather_by(InOrder{});
  with_integers(index, gather_by);
}

}  // namespace pyg_batchgnn
