// The edges of one row of an irregular relation, a few vectors at a time.
#pragma once
#include <algorithm>

#include "problem.h"
#include "simd.h"

namespace erlangen::ERLANGEN_ISA {

// Some edges of a row: few enough for the rows they gather to stay in L1 until they are read again.
template <class T>
struct Chunk {
  static constexpr int N = kLanes<T>, kSize = 32;
  int32_t index[kSize];  // padding lanes repeat the last edge, which is read anyway
  int count = 0;
  int64_t first = 0;     // offset of its first edge among those of relation 0

  int vectors() const { return (count + N - 1) / N; }
  // The lanes of a vector that hold an edge.
  Bits<T> valid(int vector) const {
    const int left = count - vector * N;
    return lanes_of<T>(left >= N ? ~uint64_t{0} : (uint64_t{1} << left) - 1);
  }
};

// Walks over the indices of a row; keeps count of the edges where something is stored for each.
template <class T, bool Counted>
struct Walk {
  static constexpr int kSize = Chunk<T>::kSize;
  const RunView& runs;
  int64_t run, end, offset = 0;
  int32_t next = 0;

  Walk(const RunView& runs_, int64_t relation, int64_t row) : runs(runs_) {
    const int64_t* indptr = runs.indptr + relation * (runs.rows + 1) + row;
    run = indptr[0];
    end = indptr[1];
    if constexpr (Counted) offset = runs.before[row];
    if (run < end) next = runs.starts[run];
  }
  bool take(Chunk<T>& chunk) {
    if (run >= end) return false;
    int count = 0;
    if (!runs.stops) {
      count = static_cast<int>(std::min<int64_t>(kSize, end - run));
      std::memcpy(chunk.index, runs.starts + run, sizeof chunk.index);  // kSize <= kAhead
      run += count;
    } else {
      while (run < end && count < kSize) {
        const int part = std::min(kSize - count, runs.stops[run] - next);
        for (int t = 0; t < part; ++t) chunk.index[count + t] = next + t;
        count += part;
        next += part;
        if (next == runs.stops[run] && ++run < end) next = runs.starts[run];
      }
    }
    chunk.count = count;
    for (; count % kLanes<T> != 0; ++count) chunk.index[count] = chunk.index[chunk.count - 1];
    if constexpr (Counted) {
      chunk.first = offset;
      offset += chunk.count;
    }
    return true;
  }
  // Indices to prefetch: a vector of the edges after those taken, of this row or another; null where runs are long, as
  // the hardware then prefetches by itself.
  const int32_t* upcoming(int vector) const {
    return runs.stops ? nullptr : runs.starts + run + vector * kLanes<T>;  // 2 kSize <= kAhead
  }
};

}  // namespace erlangen::ERLANGEN_ISA
