// A small pool of threads: the caller works too. Cores may be unequally busy with other work: whoever is free takes a part
// of what is left, a small one in the end, so that all are done at about the same time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace erlangen {

using TaskFunction = void (*)(void* context, int64_t task);

// Runs function(context, t) for every t in [0, tasks) on at most `threads` threads, and returns when all are done.
// Which thread runs a task is not fixed, so a task's result must not depend on it. A thread takes at most `together`
// consecutive tasks at a time: more than one where neighbours read the same memory.
void run_tasks(int64_t tasks, int threads, int64_t together, TaskFunction function, void* context);

template <class F>
void parallel(int64_t tasks, int threads, F&& task, int64_t together = 1) {
  run_tasks(tasks, threads, together, [](void* f, int64_t t) { (*static_cast<F*>(f))(t); }, &task);
}

// Chains of work, each to be done in order, by one thread at a time. `left` is how much there is to do of each;
// advance(context, chain, work) does about `work` of it, at least something, and returns what is left.
using ChainFunction = int64_t (*)(void* context, int64_t chain, int64_t work);
void run_chains(const std::vector<int64_t>& left, int threads, ChainFunction advance, void* context);

template <class F>
void parallel_chains(const std::vector<int64_t>& left, int threads, F&& advance) {
  run_chains(left, threads, [](void* f, int64_t c, int64_t work) { return (*static_cast<F*>(f))(c, work); }, &advance);
}

// Scratch memory of the calling thread, kept between calls so that its pages are touched only once.
// slot 0 belongs to the kernel's driver (shared by its tasks), slot 1 to the running task.
// Aligned to 64 bytes; contents are undefined.
void* scratch(int slot, std::size_t bytes);

// Asks for large pages under a big, fresh buffer, where the system has them: touching it then costs fewer faults.
void prefer_large_pages(void* data, std::size_t bytes);

// How many pieces of work to cut a problem into, at least: fixed for a machine, never by the number of threads in use,
// so that sums of partial results are the same for every number of threads.
int64_t pieces_of_work(int64_t least);

}  // namespace erlangen
