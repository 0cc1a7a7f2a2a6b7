// A small pool of threads: the caller works too, tasks are handed out one after another.
#pragma once
#include <cstddef>
#include <cstdint>

namespace erlangen {

using TaskFunction = void (*)(void* context, int64_t task);

// Runs function(context, t) for every t in [0, tasks) on at most `threads` threads, and returns when all are done.
// Which thread runs a task is not fixed, so a task's result must not depend on it.
void run_tasks(int64_t tasks, int threads, TaskFunction function, void* context);

template <class F>
void parallel(int64_t tasks, int threads, F&& task) {
  run_tasks(tasks, threads, [](void* f, int64_t t) { (*static_cast<F*>(f))(t); }, &task);
}

// Scratch memory of the calling thread, kept between calls so that its pages are touched only once.
// slot 0 belongs to the kernel's driver (shared by its tasks), slot 1 to the running task.
// Aligned to 64 bytes; contents are undefined.
void* scratch(int slot, std::size_t bytes);

// Asks for large pages under a big, fresh buffer, where the system has them: touching it then costs fewer faults.
void prefer_large_pages(void* data, std::size_t bytes);

// How many pieces of work to cut a problem into: fixed for a machine, never by the number of threads in use,
// so that sums of partial results are the same for every number of threads.
int64_t pieces_of_work();

}  // namespace erlangen
