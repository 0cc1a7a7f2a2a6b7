// A small pool of threads with guided self-scheduling (Polychronopoulos and Kuck, 1987): cores may be unequally busy with
// other work, so whoever is free takes a part of what is left, a small one in the end. The caller works too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace erlangen {

// Runs task(t) for every t in [0, tasks) on at most `threads` threads, and returns when all are done. Which thread runs a
// task is not fixed, so a task's result must not depend on it. A thread takes at most `grain` consecutive tasks at a
// time: more than one where neighbours read the same memory.
void parallel(int64_t tasks, int threads, const std::function<void(int64_t)>& task, int64_t grain = 1);

// Calls row(b, h, i) for all rows of a (batch, heads, rows, ...) tensor, `chunk` of them in a task: head after head, or
// the heads of a position one after the other where they are neighbours in memory (`heads_last`).
template <class F>
void parallel_rows(int64_t batch, int64_t heads, int64_t rows, int64_t chunk, bool heads_last, int threads, F&& row) {
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const int64_t outer = heads_last ? 1 : heads, inner = heads_last ? heads : 1;
  parallel(batch * outer * chunks, threads, [&](int64_t n) {
    const int64_t b = n / (outer * chunks), h = n / chunks % outer, first = n % chunks * chunk;
    for (int64_t i = first; i < std::min(rows, first + chunk); ++i)
      for (int64_t x = 0; x < inner; ++x) row(b, h + x, i);
  });
}

// Chains of work, each to be done in order, by one thread at a time. `left` is how much there is to do of each;
// advance(chain, work) does about `work` of it, at least something, and returns what is left.
void parallel_chains(const std::vector<int64_t>& left, int threads,
                     const std::function<int64_t(int64_t chain, int64_t work)>& advance);

// How many pieces of work to cut a problem into, at least: fixed for a machine, never by the number of threads in use,
// so that sums of partial results are the same for every number of threads.
int64_t pieces_of_work(int64_t least);

}  // namespace erlangen
