// Sixteen float32 lanes on any CPU: GCC and Clang split the vectors where registers are narrower.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace firstlight {

constexpr int LANES = 16;
using f32x16 = float __attribute__((vector_size(64)));
using i32x16 = std::int32_t __attribute__((vector_size(64)));
using u32x16 = std::uint32_t __attribute__((vector_size(64)));
using u16x16 = std::uint16_t __attribute__((vector_size(32)));
using i8x16 = std::int8_t __attribute__((vector_size(16)));
using u8x16 = std::uint8_t __attribute__((vector_size(16)));

struct bf16 {
  std::uint16_t bits;
};

template <class V>
inline V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
inline void store(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

inline f32x16 splat(float x) { return x - f32x16{}; }

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
  std::uint32_t bits = std::uint32_t(x.bits) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// To nearest, ties to even, as torch rounds; a NaN stays one.
inline std::uint16_t rounded(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t(bits >> 16 | 0x40);
  return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline void narrow(float x, float* to) { *to = x; }
inline void narrow(float x, bf16* to) { to->bits = rounded(x); }

inline u32x16 rounded(f32x16 x) {
  u32x16 bits = (u32x16)x;
  u32x16 up = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  u32x16 nan = (bits >> 16) | 0x40;
  u32x16 is_nan = (u32x16)((bits & 0x7fffffffu) > 0x7f800000u);
  return (up & ~is_nan) | (nan & is_nan);
}

// Rounded to bfloat16. The CPU's own instruction takes what is below the normal numbers for zero.
inline u16x16 as_bf16(f32x16 x) {
#if defined(__AVX512BF16__)
  return (u16x16)_mm512_cvtneps_pbh((__m512)x);
#else
  return __builtin_convertvector(rounded(x), u16x16);
#endif
}
inline f32x16 of_bf16(u16x16 x) {
#if defined(__AVX512F__)  // compilers widen halves and join them
  return (f32x16)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)x), 16);
#else
  return (f32x16)(__builtin_convertvector(x, u32x16) << 16);
#endif
}

inline f32x16 load16(const float* from) { return load<f32x16>(from); }
inline f32x16 load16(const bf16* from) { return of_bf16(load<u16x16>(from)); }
inline void store16(float* to, f32x16 v) { store(to, v); }
inline void store16(bf16* to, f32x16 v) { store(to, as_bf16(v)); }
// As torch rounds, numbers below the normal ones too.
inline void store_exactly(float* to, f32x16 v) { store(to, v); }
inline void store_exactly(bf16* to, f32x16 v) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)v, 0x20) == 0, 1)) return store16(to, v);
#endif
  store(to, __builtin_convertvector(rounded(v), u16x16));
}
// Two numbers of each lane, as a pair of neighbours along k.
inline u32x16 as_pairs(f32x16 even, f32x16 odd) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
  alignas(64) static constexpr std::uint16_t TURNS[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  auto both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
  return (u32x16)_mm512_permutexvar_epi16(load<__m512i>(TURNS), both);
#else
  return rounded(even) | rounded(odd) << 16;
#endif
}

// What a value becomes when it is stored as T: operations of a model round their results.
template <class T>
inline f32x16 as_stored(f32x16 v);
template <>
inline f32x16 as_stored<float>(f32x16 v) { return v; }
template <>
inline f32x16 as_stored<bf16>(f32x16 v) { return of_bf16(as_bf16(v)); }

// The first n lanes; the others are zero.
template <class T>
inline f32x16 load_part(const T* from, int n) {
  f32x16 v{};
  for (int i = 0; i < n; ++i) v[i] = widen(from[i]);
  return v;
}
template <class T>
inline void store_part(T* to, f32x16 v, int n) {
  for (int i = 0; i < n; ++i) narrow(v[i], to + i);
}

inline float sum(f32x16 v) {
  using f32x8 = float __attribute__((vector_size(32)));
  using f32x4 = float __attribute__((vector_size(16)));
  f32x8 e = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
            __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  f32x4 q = __builtin_shufflevector(e, e, 0, 1, 2, 3) + __builtin_shufflevector(e, e, 4, 5, 6, 7);
  return (q[0] + q[2]) + (q[1] + q[3]);
}

inline float largest(f32x16 v) {
  float most = v[0];
  for (int i = 1; i < LANES; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

inline f32x16 larger(f32x16 a, f32x16 b) {  // b where one of them is NaN
#if defined(__AVX512F__)
  return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
#else
  return a > b ? a : b;
#endif
}

// To the nearest whole number, as a float; |x| below 2^22.
inline f32x16 nearest(f32x16 x) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_roundscale_ps((__m512)x, 0);
#else
  return (x + 12582912.0f) - 12582912.0f;
#endif
}

// x 2^k for whole k from -126 to 127 where the result is a normal number.
inline f32x16 scaled(f32x16 x, f32x16 k) {
#if defined(__AVX512F__)
  return (f32x16)_mm512_scalef_ps((__m512)x, (__m512)k);
#else
  return (f32x16)((u32x16)x + ((u32x16)(k + 12582912.0f) << 23));
#endif
}

// e^x to about two units in the last place: 2^n times a polynomial on [-ln2/2, ln2/2].
inline f32x16 exp(f32x16 x) {
  x = larger(splat(-87.3f), x);
  x = x > 88.7f ? splat(88.7f) : x;
  f32x16 k = nearest(x * 1.44269504f);
  f32x16 r = x - k * 0.693359375f;
  r = r - k * -2.12194440e-4f;
  f32x16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  return scaled(p, k);
}

// 2^x for x up to 0, to some 2e-7 of it: a polynomial fitted on [-1/2, 1/2].
inline f32x16 power_of_two(f32x16 x) {
  x = larger(splat(-126.0f), x);
  f32x16 k = nearest(x), r = x - k;
  f32x16 p = splat(1.3264725e-3f);
  p = p * r + 9.6715130e-3f;
  p = p * r + 5.5507336e-2f;
  p = p * r + 2.4022242e-1f;
  p = p * r + 6.9314700e-1f;
  p = p * r + 1.0f;
  return scaled(p, k);
}

// 1 / x for normal x whose reciprocal is normal, to about a unit in the last place.
inline f32x16 reciprocal(f32x16 x) {
#if defined(__AVX512F__)
  f32x16 y = (f32x16)_mm512_rcp14_ps((__m512)x);
  return y + y * (1.0f - x * y);
#else
  return 1.0f / x;
#endif
}

// Of each pair of neighbouring groups of S lanes, the second of a and the first of b change places.
template <int S, class V, int... L>
inline void exchange(V& a, V& b, std::integer_sequence<int, L...>) {
  V low = __builtin_shufflevector(a, b, (L & S ? LANES + (L ^ S) : L)...);
  b = __builtin_shufflevector(a, b, (L & S ? LANES + L : L ^ S)...);
  a = low;
}
template <int S, class V>
inline void exchange_all(V (&v)[LANES]) {
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i)
    if (!(i & S)) exchange<S>(v[i], v[i + S], std::make_integer_sequence<int, LANES>());
}

// Rows become columns: lane j of v[i] goes to lane i of v[j].
template <class V>
inline void transpose(V (&v)[LANES]) {
  exchange_all<8>(v);
  exchange_all<4>(v);
  exchange_all<2>(v);
  exchange_all<1>(v);
}

// acc + x[0] w[2i] + x[1] w[2i + 1] for the lanes i; w and x are pairs of bfloat16.
inline f32x16 dot_pairs(f32x16 acc, u32x16 w, std::uint32_t x) {
#if defined(__AVX512BF16__)
  __m512i pair = _mm512_set1_epi32(int(x));
  return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)pair);
#else
  f32x16 even = (f32x16)(w << 16), odd = (f32x16)(w & 0xffff0000u);
  return acc + even * widen(bf16{std::uint16_t(x)}) + odd * widen(bf16{std::uint16_t(x >> 16)});
#endif
}

}  // namespace firstlight
