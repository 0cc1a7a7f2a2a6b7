#include "kept.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "threads.h"

namespace erlangen {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 30;   // bytes kept of blocks that nobody uses
constexpr std::size_t kGrain = std::size_t{2} << 20;  // a large page

// Whoever does not get the lock at once goes to the system: a process forked while it was held must not wait for ever.
struct Kept {
  std::mutex mutex;
  std::vector<Memory> blocks;  // the oldest first
  std::size_t total = 0;

  // The best fit, of several the one freed last. No memory where nothing fits: a block is not used for much less than
  // it holds.
  Memory take(std::size_t size) {
    std::size_t best = blocks.size();
    for (std::size_t n = 0; n < blocks.size(); ++n)
      if (blocks[n].size >= size && blocks[n].size <= size + size / 4 &&
          (best == blocks.size() || blocks[n].size <= blocks[best].size))
        best = n;
    return best < blocks.size() ? remove(best) : Memory{nullptr, 0};
  }
  Memory remove(std::size_t n) {
    const Memory memory = blocks[n];
    total -= memory.size;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(n));
    return memory;
  }
  void shrink(std::size_t most) {
    while (total > most) std::free(remove(0).data);
  }
};

Kept& kept() {
  static Kept& it = *new Kept;  // never destroyed: results may outlive static destructors
  return it;
}

}  // namespace

Memory take_memory(std::size_t bytes) {
  const std::size_t size = (bytes + kGrain - 1) / kGrain * kGrain;
  if (std::unique_lock lock(kept().mutex, std::try_to_lock); lock)
    if (const Memory memory = kept().take(size); memory.data) return memory;
  void* data = std::aligned_alloc(kGrain, size);
  if (!data) {
    release_kept_memory();
    data = std::aligned_alloc(kGrain, size);
  }
  if (!data) throw std::bad_alloc();
  prefer_large_pages(data, size);
  return {data, size};
}

void give_back(Memory memory) {
  if (std::unique_lock lock(kept().mutex, std::try_to_lock); lock && memory.size <= kMost) {
    kept().shrink(kMost - memory.size);
    kept().blocks.push_back(memory);
    kept().total += memory.size;
  } else {
    std::free(memory.data);
  }
}

void release_kept_memory() {
  if (std::unique_lock lock(kept().mutex, std::try_to_lock); lock) kept().shrink(0);
}

}  // namespace erlangen
