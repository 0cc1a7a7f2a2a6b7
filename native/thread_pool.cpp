#include "thread_pool.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <queue>
#include <thread>
#include <utility>

namespace erlangen {
namespace {

// How much of what is left a thread takes at a time.
int64_t part_of(int64_t left, int threads) { return std::max<int64_t>(1, left / (4 * threads)); }

struct Job {
  const std::function<void(int64_t)>& task;
  int64_t tasks, grain;
  int threads;
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;

  void work() {
    try {
      for (int64_t t = next.load(std::memory_order_relaxed); t < tasks;) {
        const int64_t last = t + std::min(grain, part_of(tasks - t, threads));
        if (!next.compare_exchange_weak(t, last, std::memory_order_relaxed)) continue;
        for (; t < last; ++t) task(t);
        t = next.load(std::memory_order_relaxed);
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      next.store(tasks);
    }
  }
};

class Pool {
 public:
  void run(Job& job, int threads) {
    std::unique_lock only_one(busy_, std::try_to_lock);
    if (!only_one || threads <= 1 || job.tasks <= 1) return job.work();  // a second caller works alone
    const int helpers = static_cast<int>(std::min<int64_t>(threads, job.tasks)) - 1;
    {
      std::lock_guard lock(mutex_);
      for (; started_ < helpers; ++started_) std::thread([this] { serve(); }).detach();
      job_ = &job;
      seats_ = helpers;
    }
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
    job.work();
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // a helper that did not wake up in time is not waited for
    done_.wait(lock, [this] { return working_ == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return job_ && seats_ > 0; });
      Job* job = job_;
      --seats_;
      ++working_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--working_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_, mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int seats_ = 0, working_ = 0, started_ = 0;
};

// PyTorch runs its own operators on the threads of GNU OpenMP, which spin for a while when they are done. Working on
// those threads, where the process has them, starts at once and never competes with them for a core.
using OpenMPParallel = void (*)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
std::atomic<bool> forked{false};  // OpenMP's threads do not survive a fork, and waiting for them would never end

OpenMPParallel openmp() {
  static std::atomic<OpenMPParallel> found{nullptr};  // looked for until found: PyTorch may be imported later
  OpenMPParallel parallel = found.load(std::memory_order_relaxed);
  if (!parallel) {
    parallel = reinterpret_cast<OpenMPParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    found.store(parallel, std::memory_order_relaxed);
  }
  return forked.load(std::memory_order_relaxed) ? nullptr : parallel;
}

// Never destroyed: detached helpers may outlive static destructors. A forked child has no helpers and starts anew.
alignas(Pool) std::byte pool_memory[sizeof(Pool)];
Pool* pool = nullptr;
std::once_flag pool_once;

Pool& the_pool() {
  std::call_once(pool_once, [] {
    pool = new (pool_memory) Pool;
    pthread_atfork(nullptr, nullptr, [] {
      pool = new (pool_memory) Pool;
      forked = true;
    });
  });
  return *pool;
}

}  // namespace

void parallel(int64_t tasks, int threads, const std::function<void(int64_t)>& task, int64_t grain) {
  threads = static_cast<int>(std::min<int64_t>(threads, tasks));
  Job job{task, tasks, grain, threads};
  Pool& own = the_pool();
  const OpenMPParallel team = threads > 1 ? openmp() : nullptr;
  if (team)
    team([](void* shared) { static_cast<Job*>(shared)->work(); }, &job, static_cast<unsigned>(threads), 0);
  else
    own.run(job, threads);
  if (job.error) std::rethrow_exception(job.error);
}

void parallel_chains(const std::vector<int64_t>& left, int threads,
                     const std::function<int64_t(int64_t, int64_t)>& advance) {
  std::mutex mutex;
  std::priority_queue<std::pair<int64_t, int64_t>> idle;  // what is left, and of which chain
  int64_t all_left = 0;
  for (size_t c = 0; c < left.size(); ++c) {
    if (left[c] > 0) idle.emplace(left[c], -static_cast<int64_t>(c));
    all_left += left[c];
  }
  threads = static_cast<int>(std::min<size_t>(threads, idle.size()));
  parallel(threads, threads, [&](int64_t) {
    std::unique_lock lock(mutex);
    while (!idle.empty()) {  // whoever has one of the others ends it
      const auto [before, chain] = idle.top();
      idle.pop();
      const int64_t work = part_of(all_left, threads);
      lock.unlock();
      const int64_t after = advance(-chain, work);
      lock.lock();
      all_left -= before - after;
      if (after > 0) idle.emplace(after, chain);
    }
  });
}

int64_t pieces_of_work(int64_t least) {
  static const int64_t cores = std::thread::hardware_concurrency();
  return std::max(least, 2 * cores);
}

}  // namespace erlangen
