#include "dispatch.h"

namespace erlangen {

namespace baseline {
void tiles_forward(const Problem&);
void tiles_backward(const Problem&);
void edges_forward(const Problem&);
void edges_backward(const Problem&);
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
void tiles_forward(const Problem&);
void tiles_backward(const Problem&);
void edges_forward(const Problem&);
void edges_backward(const Problem&);
}  // namespace avx2
#endif
#if defined(ERLANGEN_AVX512)
namespace avx512 {
void tiles_forward(const Problem&);
void tiles_backward(const Problem&);
void edges_forward(const Problem&);
void edges_backward(const Problem&);
}  // namespace avx512
#endif

const std::vector<Kernels>& usable_kernels() {
  static const std::vector<Kernels> all = [] {
    std::vector<Kernels> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#if defined(ERLANGEN_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
      found.push_back({"avx512", avx512::tiles_forward, avx512::tiles_backward, avx512::edges_forward,
                       avx512::edges_backward});
#endif
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      found.push_back({"avx2", avx2::tiles_forward, avx2::tiles_backward, avx2::edges_forward, avx2::edges_backward});
#endif
    found.push_back({"baseline", baseline::tiles_forward, baseline::tiles_backward, baseline::edges_forward,
                     baseline::edges_backward});
    return found;
  }();
  return all;
}

}  // namespace erlangen
