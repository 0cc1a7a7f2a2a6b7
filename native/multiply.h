// The one product every step of the tile kernels uses: C += A B on a block of registers.
#pragma once
#include "simd.h"

namespace erlangen::ERLANGEN_ISA {

// Queries of a panel: the lanes of a register block.
template <class T>
inline constexpr int kPanel = kColumns * kLanes<T>;
template <class T>
inline int64_t padded(int64_t dim) {
  return (dim + kPanel<T> - 1) / kPanel<T> * kPanel<T>;
}

// A(r, k) of a row-major matrix, and of its transpose.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  T operator()(int r, int64_t k) const { return data[r * stride + k]; }
};
template <class T>
struct Columns {
  const T* data;
  int64_t stride;
  T operator()(int r, int64_t k) const { return data[k * stride + r]; }
};

template <class T, int R, int C = kColumns>
using Block = Vec<T>[R][C];

// block[r] += sum over k < n of A(r, k) * b[k], in columns First to Last. The rows of b are at a distance of `stride`.
// Where b may hold masked zeros or A(r, k) may be infinite or NaN, `skip_in_*` leaves out the terms with a zero factor
// of the given side, because 0 * inf would spoil pairs outside the relation.
enum class Zeros { multiply, skip_in_a, skip_in_b };

template <Zeros zeros, class T, int R, int First = 0, int Last = kColumns, int C, class A>
inline __attribute__((always_inline)) void multiply(Block<T, R, C>& block, A a, const T* b, int64_t stride, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    Vec<T> right[C];
#pragma GCC unroll 2
    for (int c = First; c < Last; ++c) right[c] = load(b + k * stride + c * kLanes<T>);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec<T> left = broadcast(a(r, k));
#pragma GCC unroll 2
      for (int c = First; c < Last; ++c) {
        if constexpr (zeros == Zeros::multiply) {
          block[r][c] += left * right[c];
        } else {
          const Vec<T> factor = zeros == Zeros::skip_in_a ? left : right[c];
          block[r][c] += factor == 0 ? Vec<T>{} : left * right[c];
        }
      }
    }
  }
}

// Calls f with the number of rows as a compile-time constant.
template <int R = kRows, class F>
inline void with_rows(int rows, F&& f) {
  if constexpr (R == 1) {
    f(std::integral_constant<int, 1>());
  } else {
    if (rows == R) return f(std::integral_constant<int, R>());
    with_rows<R - 1>(rows, f);
  }
}

template <class T, int R, int C>
inline __attribute__((always_inline)) void load_block(Block<T, R, C>& block, const T* from, int64_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) block[r][c] = load(from + r * stride + c * kLanes<T>);
}
template <class T, int R, int C>
inline __attribute__((always_inline)) void store_block(T* to, int64_t stride, const Block<T, R, C>& block) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) store(to + r * stride + c * kLanes<T>, block[r][c]);
}

}  // namespace erlangen::ERLANGEN_ISA
