// Repacking of rows that are gathered often. Where the heads of a position are neighbours in memory, the rows of one head
// are spread over the memory of all heads, and few of them stay in cache from one use to the next.
#pragma once
#include <cstring>

#include "buffer_pool.h"
#include "problem.h"
#include "thread_pool.h"

namespace erlangen::ERLANGEN_ISA {

// Whether repacking the rows that are gathered along `runs` takes less time than it saves.
template <class S>
bool repacking_pays(const Problem& p, const View& gathered, const RunView& runs, int64_t heads, int64_t rows) {
  if (!gathered.heads_last(heads) || runs.stops) return false;
  const int64_t edges = runs.indptr[runs.rows] - runs.indptr[0], width = p.dim + p.dim_v;
  return edges >= kOftenGathered * rows && edges * p.heads * width * static_cast<int64_t>(sizeof(S)) >= kMuchGathered;
}

// Memory for copies of two tensors with `rows` rows, one after another if there are several pairs; none for no rows.
template <class S>
class Repacked {
 public:
  Repacked(const Problem& p, int64_t rows) : p_(p) {
    const int64_t size = p.batch * rows * (p.dim + p.dim_v) * static_cast<int64_t>(sizeof(S));
    if (size > 0) buffer_ = take_buffer(static_cast<std::size_t>(size));
  }
  Repacked(const Repacked&) = delete;
  ~Repacked() {
    if (buffer_.data) return_buffer(buffer_);
  }

  // Copies x and y, head after head, a row of y after that of x, and makes them views of the copies.
  void repack(View& x, View& y, int64_t heads, int64_t rows) const {
    const int64_t width = p_.dim + p_.dim_v, head = rows * width, chunks = (rows + kChunk - 1) / kChunk;
    S* to = static_cast<S*>(buffer_.data);
    parallel(p_.batch * chunks, p_.threads, [&](int64_t n) {
      const int64_t b = n / chunks, first = n % chunks * kChunk;
      for (int64_t i = first; i < std::min(rows, first + kChunk); ++i)
        for (int64_t h = 0; h < heads; ++h) {
          S* row = to + (b * heads + h) * head + i * width;
          std::memcpy(row, x.at<S>(b, h, i), p_.dim * sizeof(S));
          std::memcpy(row + p_.dim, y.at<S>(b, h, i), p_.dim_v * sizeof(S));
        }
    });
    x = {to, heads * head, head, width};
    y = {to + p_.dim, heads * head, head, width};
  }

 private:
  static constexpr int64_t kChunk = 64;
  const Problem& p_;
  Buffer buffer_{nullptr, 0};
};

}  // namespace erlangen::ERLANGEN_ISA
