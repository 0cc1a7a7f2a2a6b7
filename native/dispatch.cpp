#include "dispatch.h"

#include <atomic>
#include <stdexcept>


namespace erlangen {

namespace baseline {
extern const Kernels kernels;
}
#if defined(ERLANGEN_AVX2)
namespace avx2 {
extern const Kernels kernels;
}
#endif
#if defined(ERLANGEN_AVX512)
namespace avx512 {
extern const Kernels kernels;
}
#endif

static std::atomic<const Kernels*> in_use{nullptr};

const std::vector<Kernels>& usable_kernels() {
  static const std::vector<Kernels> all = [] {
    std::vector<Kernels> found;
#if defined(ERLANGEN_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
      found.push_back(avx512::kernels);
#endif
#if defined(ERLANGEN_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(avx2::kernels);
#endif
    found.push_back(baseline::kernels);
    return found;
  }();
  return all;
}

const Kernels& kernels() {
  const Kernels* chosen = in_use.load(std::memory_order_relaxed);
  return chosen ? *chosen : usable_kernels().front();
}

void choose_kernels(const std::string& instruction_set) {
  for (const Kernels& each : usable_kernels())
    if (each.instruction_set == instruction_set) return in_use.store(&each);
  throw std::invalid_argument("no such instruction set on this machine: " + instruction_set);
}

}  // namespace erlangen
