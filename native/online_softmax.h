// The softmax of rows whose scores arrive in blocks: a running maximum and a running sum, which is rescaled whenever the
// maximum rises (Milakov and Gimelshein, arXiv 1805.02867); and their weights once more in the backward pass, from the
// statistics of each row (FlashAttention, arXiv 2205.14135). Scores are in units of log2.
#pragma once
#include <cmath>

#include "elementary.h"

namespace erlangen::ERLANGEN_ISA {

// V is T for one row, whose scores fill vectors, and Vec<T> for a row per lane.
template <class T, class V>
struct OnlineSoftmax {
  V maximum = V{} - kInf<T>, sum = {};
  V base = {};  // what scores are relative to: the maximum, or 0 as long as all are -inf

  // The maximum becomes that of all scores so far. Whatever was summed before must be multiplied by the result.
  V rescale(V raised) {
    base = raised == -kInf<T> ? V{} : raised;
    const V factor = exp2(maximum - base);
    maximum = raised;
    return factor;
  }
  Vec<T> weights(Vec<T> scores) const { return exp2(scores - base); }

  // A row without keys has sum 0.
  V inverse() const { return sum == 0 ? V{} : 1 / sum; }
  V log_sum_exp() const {
    constexpr T ln2 = static_cast<T>(kLn2);
    if constexpr (std::is_same_v<T, V>)
      return sum == 0 ? -kInf<T> : maximum * ln2 + std::log(sum);
    else
      return sum == 0 ? broadcast(-kInf<T>) : (maximum + log2<T>(sum)) * ln2;
  }
  // Of one row, number `at`; the statistics may be null.
  void save(T* lse, T* statistics, int64_t at) const {
    lse[at] = log_sum_exp();
    if (!statistics) return;
    statistics[2 * at] = maximum;
    statistics[2 * at + 1] = sum;
  }
};

// What the backward pass needs of the softmax of a row, from its maximum and its sum. A row without keys has the weights
// 2^(x - inf) = 0.
template <class T>
struct RowStatistics {
  T maximum, inverse;

  explicit RowStatistics(const T* stored)
      : maximum(stored[1] == 0 ? kInf<T> : stored[0]), inverse(stored[1] == 0 ? T{0} : 1 / stored[1]) {}
};

// `x` is a score less the maximum of its row. Rounding must not make the weight larger than one; a NaN stays.
template <class T>
inline __attribute__((always_inline)) Vec<T> weight_of(Vec<T> x, Vec<T> inverse) {
  return exp2(x > 0 ? Vec<T>{} : x) * inverse;
}

}  // namespace erlangen::ERLANGEN_ISA
