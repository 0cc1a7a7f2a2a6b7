// Fixed-width vectors in plain GCC/Clang vector extensions. The width is that of the instruction set the including
// source is compiled for; ERLANGEN_ISA names it, so that the same code lives once per instruction set.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace erlangen::ERLANGEN_ISA {

#if defined(__AVX512F__)
inline constexpr int kBytes = 64, kRows = 12;
#elif defined(__AVX__)
inline constexpr int kBytes = 32, kRows = 6;
#elif defined(__aarch64__)
inline constexpr int kBytes = 16, kRows = 12;
#else
inline constexpr int kBytes = 16, kRows = 6;
#endif
// A register block is kRows x kColumns vectors; with its operands it fills the registers without spilling.
inline constexpr int kColumns = 2;

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kBytes)));
  typedef int32_t bits __attribute__((vector_size(kBytes)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kBytes)));
  typedef int64_t bits __attribute__((vector_size(kBytes)));
};

template <class T>
using Vec = typename VectorOf<T>::type;
template <class T>
using Bits = typename VectorOf<T>::bits;
template <class T>
inline constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));
template <class T>
inline constexpr T kInf = std::numeric_limits<T>::infinity();

template <class T>
inline Vec<T> load(const T* p) {
  Vec<T> v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
inline void store(T* p, Vec<T> v) {
  std::memcpy(p, &v, sizeof v);
}
template <class T>
inline Vec<T> broadcast(T x) {
  return x - Vec<T>{};  // x - 0 is x, also for -0, so no arithmetic is left
}
template <class V>
inline V max(V a, V b) {
  return a > b ? a : b;  // a NaN in `a` is ignored
}

// x as a number of its own: without this a compiler fuses the product that x is with a later sum, here and not there.
template <class V>
inline __attribute__((always_inline)) V rounded(V x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#else
  asm("" : "+m"(x));
#endif
  return x;
}

// Lane i of the result is set when bit i of `word` is.
template <class T>
inline Bits<T> lanes_of(uint64_t word) {
  Bits<T> one;
  for (int i = 0; i < kLanes<T>; ++i) one[i] = decltype(one[0] + 0){1} << i;
  using Scalar = std::remove_cvref_t<decltype(one[0] + 0)>;
  return ((static_cast<Scalar>(word) - Bits<T>{}) & one) != 0;
}

// Adds neighbouring blocks of lanes of a and b: `Block` lanes each, without leaving groups of `Group` lanes.
template <int Block, int Group, class V, std::size_t... I>
inline V add_neighbours(V a, V b, std::index_sequence<I...>) {
  constexpr auto source = [](std::size_t i) {
    const std::size_t group = i / Group * Group, within = i % Group, half = Group / 2;
    const std::size_t from_b = within >= half ? sizeof...(I) : 0, block = within % half / Block;
    return from_b + group + 2 * block * Block + within % Block;
  };
  return __builtin_shufflevector(a, b, source(I)...) + __builtin_shufflevector(a, b, (source(I) + Block)...);
}
// Lane i of the result is the sum of the lanes of v[i]: first within 128 bits, where shuffles are cheap, then across.
template <class T>
inline Vec<T> sums(Vec<T> (&v)[kLanes<T>]) {
  constexpr int N = kLanes<T>, P = 16 / static_cast<int>(sizeof(T));
  constexpr auto lanes = std::make_index_sequence<N>();
  int count = N;
#pragma GCC unroll 2
  for (int level = 1; level < P; level *= 2) {
    count /= 2;
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) v[i] = add_neighbours<1, P>(v[2 * i], v[2 * i + 1], lanes);
  }
  if constexpr (N > P) {
#pragma GCC unroll 2
    for (int level = P; level < N; level *= 2) {
      count /= 2;
#pragma GCC unroll 8
      for (int i = 0; i < count; ++i) v[i] = add_neighbours<P, N>(v[2 * i], v[2 * i + 1], lanes);
    }
  }
  return v[0];
}
// Rows become columns: swaps off-diagonal blocks of 1, 2, 4, ... lanes.
template <int Step, class V, std::size_t... I>
inline void swap_blocks(V& a, V& b, std::index_sequence<I...>) {
  constexpr std::size_t n = sizeof...(I);
  const V low = __builtin_shufflevector(a, b, (I & Step ? n + I - Step : I)...);
  b = __builtin_shufflevector(a, b, (I & Step ? n + I : I + Step)...);
  a = low;
}
template <class T, int Step = 1>
inline __attribute__((always_inline)) void transpose(Vec<T> (&v)[kLanes<T>]) {
  if constexpr (Step < kLanes<T>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i)
      if (!(i & Step)) swap_blocks<Step>(v[i], v[i + Step], std::make_index_sequence<kLanes<T>>());
    transpose<T, 2 * Step>(v);
  }
}
// One number from the lanes of a vector, halving it again and again.
template <int Width, class V, class F, std::size_t... I>
inline V fold_halves(V v, F&& f, std::index_sequence<I...> lanes) {
  if constexpr (Width == 1) {
    return v;
  } else {
    return fold_halves<Width / 2>(f(v, __builtin_shufflevector(v, v, (I ^ (Width / 2))...)), f, lanes);
  }
}
template <class T>
inline T sum(Vec<T> v) {
  constexpr auto lanes = std::make_index_sequence<kLanes<T>>();
  return fold_halves<kLanes<T>>(v, [](Vec<T> a, Vec<T> b) { return a + b; }, lanes)[0];
}
template <class T>
inline T largest(Vec<T> v) {  // of lanes that are not NaN, or -inf
  constexpr auto lanes = std::make_index_sequence<kLanes<T>>();
  v = v == v ? v : broadcast(-kInf<T>);
  return fold_halves<kLanes<T>>(v, [](Vec<T> a, Vec<T> b) { return max(a, b); }, lanes)[0];
}

}  // namespace erlangen::ERLANGEN_ISA
