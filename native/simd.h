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

// --- storage types -----------------------------------------------------------------------------------------------
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline float widen(f16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);  // denormals too
  const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;                     // inf and NaN
  return std::bit_cast<float>(scaled | special | sign);
}

inline void narrow(float x, float& out) { out = x; }
inline void narrow(double x, double& out) { out = x; }
inline void narrow(float x, bf16& out) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;  // to nearest, ties to even
  out.bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
inline void narrow(float x, f16& out) {
  const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t huge = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < (113u << 23) ? tiny : normal;
  out.bits = static_cast<uint16_t>(sign | (magnitude >= (143u << 23) ? huge : finite));
}

// The type sums are kept in.
template <class S>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class S>
using Accumulator = typename AccumulatorOf<S>::type;

// One vector of a stored row; `load_tail` reads only the first `count` elements and fills up with zeros.
template <class S>
inline Vec<Accumulator<S>> load_wide(const S* p) {
  using T = Accumulator<S>;
  if constexpr (std::is_same_v<S, T>) {
    return load(p);
  } else {
    T lane[kLanes<T>];
    for (int i = 0; i < kLanes<T>; ++i) lane[i] = widen(p[i]);
    return load(lane);
  }
}
template <class S>
inline Vec<Accumulator<S>> load_tail(const S* p, int count) {
  using T = Accumulator<S>;
  T lane[kLanes<T>] = {};
  for (int i = 0; i < count; ++i) lane[i] = widen(p[i]);
  return load(lane);
}

// --- arithmetic --------------------------------------------------------------------------------------------------
// 2^x for x <= 0 (and a little above); 0 below the smallest normal number, NaN for NaN.
inline __attribute__((always_inline)) Vec<float> exp2(Vec<float> x) {
  x = x < -127.0f ? broadcast(-127.0f) : x;
  const Vec<float> shifted = x + 0x1.8p23f;  // the integer nearest to x is now in the low bits
  const Vec<float> f = x - (shifted - 0x1.8p23f);
  const Bits<float> power = (std::bit_cast<Bits<float>>(shifted) + 127) << 23;
  Vec<float> y = f * 0x1.444004p-13f + 0x1.5f0896p-10f;
  y = y * f + 0x1.3b2a1cp-7f;
  y = y * f + 0x1.c6af6cp-5f;
  y = y * f + 0x1.ebfbe0p-3f;
  y = y * f + 0x1.62e430p-1f;
  y = y * f + 1.0f;
  return y * std::bit_cast<Vec<float>>(power);
}
inline __attribute__((always_inline)) Vec<double> exp2(Vec<double> x) {
  x = x < -1023.0 ? broadcast(-1023.0) : x;
  const Vec<double> shifted = x + 0x1.8p52;
  const Vec<double> f = x - (shifted - 0x1.8p52);
  const Bits<double> power = (std::bit_cast<Bits<double>>(shifted) + 1023) << 52;
  const Vec<double> t = f * 0x1.62e42fefa39efp-1;  // e^t by its series: |t| < 0.35
  Vec<double> y = t * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  for (double c : {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                   1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0})
    y = y * t + c;
  return y * std::bit_cast<Vec<double>>(power);
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
inline T maximum(Vec<T> v) {  // of lanes that are not NaN, or -inf
  constexpr auto lanes = std::make_index_sequence<kLanes<T>>();
  v = v == v ? v : broadcast(-kInf<T>);
  return fold_halves<kLanes<T>>(v, [](Vec<T> a, Vec<T> b) { return max(a, b); }, lanes)[0];
}

// --- dropout -----------------------------------------------------------------------------------------------------
// Whether pair (i, j) of head h of batch item b is kept depends on (seed, b, h, i, j) alone.
inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
struct Dropout {
  uint64_t seed;
  uint32_t threshold;  // a pair is kept when its hash is at least this
  double keep_scale;
  bool active;

  Dropout(double probability, uint64_t seed_)
      : seed(seed_),
        threshold(static_cast<uint32_t>(probability * 4294967295.0)),
        keep_scale(probability < 1 ? 1 / (1 - probability) : 0),
        active(probability > 0) {}
  uint32_t row_key(int64_t head, int64_t i) const {
    const uint64_t row = mix(mix(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(head));
    return static_cast<uint32_t>(mix(row + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u));
  }
  template <class T>
  T factor(uint32_t row_key, int64_t j) const {
    const uint32_t hash = mix(row_key ^ mix(static_cast<uint32_t>(j) + 0x9e3779b9u));
    return hash >= threshold ? static_cast<T>(keep_scale) : T{0};
  }
};

inline constexpr double kLog2E = 1.4426950408889634074, kLn2 = 0.6931471805599453094;

}  // namespace erlangen::ERLANGEN_ISA
