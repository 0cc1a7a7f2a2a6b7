#include "buffer_pool.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace erlangen {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 30;  // bytes of free buffers
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Who does not get the lock at once goes to the system: a process forked while it was held must not wait for ever.
struct Pool {
  std::mutex mutex;
  std::vector<Buffer> free;  // the oldest first
  std::size_t total = 0;

  // The best fit, of several the one freed last. None where nothing fits: a buffer is not used for much less than it
  // holds.
  Buffer take(std::size_t size) {
    std::size_t best = free.size();
    for (std::size_t n = 0; n < free.size(); ++n)
      if (free[n].size >= size && free[n].size <= size + size / 4 &&
          (best == free.size() || free[n].size <= free[best].size))
        best = n;
    return best < free.size() ? remove(best) : Buffer{nullptr, 0};
  }
  Buffer remove(std::size_t n) {
    const Buffer buffer = free[n];
    total -= buffer.size;
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(n));
    return buffer;
  }
  void evict(std::size_t capacity) {
    while (total > capacity) std::free(remove(0).data);
  }
};

Pool& pool() {
  static Pool& it = *new Pool;  // never destroyed: results may outlive static destructors
  return it;
}

}  // namespace

Buffer take_buffer(std::size_t bytes) {
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (std::unique_lock lock(pool().mutex, std::try_to_lock); lock)
    if (const Buffer buffer = pool().take(size); buffer.data) return buffer;
  void* data = std::aligned_alloc(kHugePage, size);
  if (!data) {
    empty_buffer_pool();
    data = std::aligned_alloc(kHugePage, size);
  }
  if (!data) throw std::bad_alloc();
  advise_huge_pages(data, size);
  return {data, size};
}

void return_buffer(Buffer buffer) {
  if (std::unique_lock lock(pool().mutex, std::try_to_lock); lock && buffer.size <= kCapacity) {
    pool().evict(kCapacity - buffer.size);
    pool().free.push_back(buffer);
    pool().total += buffer.size;
  } else {
    std::free(buffer.data);
  }
}

void empty_buffer_pool() {
  if (std::unique_lock lock(pool().mutex, std::try_to_lock); lock) pool().evict(0);
}

void advise_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t page = 4096, huge = std::uintptr_t{2} << 20;
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (last >= first + huge) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // only advice
#endif
}

}  // namespace erlangen
