#include <cstring>
#include <limits>
#include <stdexcept>

#include "triples.h"

namespace erlangen {

namespace baseline {
extern const TripleKernels triple_kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const TripleKernels triple_kernels;
}
#endif
#if defined(ERLANGEN_AVX512)
namespace avx512 {
extern const TripleKernels triple_kernels;
}
#endif

const TripleKernels& triple_kernels(const char* instruction_set) {
#if defined(ERLANGEN_AVX512)
  if (!std::strcmp(instruction_set, "avx512")) return avx512::triple_kernels;
#endif
#if defined(__x86_64__)
  if (!std::strcmp(instruction_set, "avx2")) return avx2::triple_kernels;
#endif
  static_cast<void>(instruction_set);
  return baseline::triple_kernels;
}

namespace {

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

TripleIndex::TripleIndex(int64_t n_, Span<int64_t> indptr, Span<int64_t> first, Span<int64_t> second)
    : n(n_), triples_(first.size) {
  require(n >= 0 && n < std::numeric_limits<int32_t>::max(), "the number of positions is out of range");
  require(indptr.size == n + 1 && indptr.data[0] == 0 && indptr.data[n] == first.size,
          "indptr must have one entry per query, plus one, from 0 to the number of triples");
  require(first.size == second.size, "every triple needs a first and a second key");
  for (int64_t i = 0; i < n; ++i) require(indptr.data[i] <= indptr.data[i + 1], "indptr must not decrease");
  for (int64_t t = 0; t < triples_; ++t)
    require(first.data[t] >= 0 && first.data[t] < n && second.data[t] >= 0 && second.data[t] < n,
            "a key of a triple is out of range");
  for (int place = 0; place < 3; ++place) {
    indptr_[place].assign(static_cast<size_t>(n + 1), 0);
    a_[place].assign(static_cast<size_t>(triples_ + kAhead), 0);
    b_[place].assign(static_cast<size_t>(triples_ + kAhead), 0);
  }
  indptr_[0].assign(indptr.data, indptr.data + indptr.size);
  for (int64_t t = 0; t < triples_; ++t) {
    a_[0][t] = static_cast<int32_t>(first.data[t]);
    b_[0][t] = static_cast<int32_t>(second.data[t]);
  }
  // A counting sort by either key keeps the order of the queries.
  for (int place = 1; place < 3; ++place) {
    const auto& own = place == 1 ? a_[0] : b_[0];
    const auto& other = place == 1 ? b_[0] : a_[0];
    auto& ends = indptr_[place];
    for (int64_t t = 0; t < triples_; ++t) ++ends[own[t] + 1];
    for (int64_t r = 0; r < n; ++r) ends[r + 1] += ends[r];
    std::vector<int64_t> next(ends.begin(), ends.end());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t t = indptr_[0][i]; t < indptr_[0][i + 1]; ++t) {
        const int64_t to = next[own[t]]++;
        a_[place][to] = static_cast<int32_t>(i);
        b_[place][to] = other[t];
      }
  }
}

void TripleIndex::apply(TripleProblem& p) const {
  require(n == p.n, "the triples are on another number of positions");
  for (int place = 0; place < 3; ++place)
    p.rows[place] = {indptr_[place].data(), a_[place].data(), b_[place].data()};
}

}  // namespace erlangen
