// RMSNorm, rotary embedding, the gate of a gated MLP, and addition, row by row.
//
// Results are rounded where torch's operations would round them.
#pragma once

#include <algorithm>
#include <cmath>

#include "instruction.h"
#include "vectors.h"

namespace firstlight {

constexpr int ROWS_OF_A_PIECE = 8;

inline std::uint32_t row_pieces(std::int64_t rows) {
  return std::uint32_t((rows + ROWS_OF_A_PIECE - 1) / ROWS_OF_A_PIECE);
}

// Calls fn(column, live) for each vector of a row.
template <class Fn>
inline void along(std::int64_t width, Fn fn) {
  std::int64_t c = 0;
  for (; c + LANES <= width; c += LANES) fn(c, LANES);
  if (c < width) fn(c, int(width - c));
}

template <class T>
inline f32x16 take(const T* from, int live) {
  return live == LANES ? load16(from) : load_part(from, live);
}
template <class T>
inline void put(T* to, f32x16 v, int live) {
  if (live == LANES) store16(to, v);
  else store_part(to, v, live);
}

// 1 / sqrt(mean of squares + eps)
template <class T>
inline float inverse_rms(const T* x, std::int64_t width, double eps) {
  f32x16 squares{};
  along(width, [&](std::int64_t c, int live) {
    f32x16 v = take(x + c, live);
    squares += v * v;
  });
  return 1.0f / std::sqrt(sum(squares) / float(width) + float(eps));
}

// The weight times what is normalised; an offset weight (kind 1) is float32 and multiplies before
// rounding, another is of the activations' type and multiplies after.
template <class T>
inline f32x16 weighted(f32x16 normed, const void* weight, std::int64_t c, int live, bool offset) {
  if (weight == nullptr) return normed;
  if (offset) return normed * take((const float*)weight + c, live);
  return take((const T*)weight + c, live) * as_stored<T>(normed);
}

// n: rows, width, stride of x, stride of y. f: eps. p: x, weight, y. kind: 1 for an offset weight.
template <class T>
void rms_norm(const Instruction& i, std::uint32_t piece) {
  std::int64_t width = i.n[1], end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
    const T* x = (const T*)i.p[0] + row * i.n[2];
    T* y = (T*)i.p[2] + row * i.n[3];
    float inverse = inverse_rms(x, width, i.f[0]);
    along(width, [&](std::int64_t c, int live) {
      put(y + c, weighted<T>(take(x + c, live) * inverse, i.p[1], c, live, i.kind == 1), live);
    });
  }
}

// The other half of a head at the same columns, negated for the first half.
inline f32x16 quarter_turn(const float* head, std::int64_t c, std::int64_t half) {
  return c < half ? -load16(head + c + half) : load16(head + c - half);
}
inline f32x16 quarter_turn(const float* head, std::int64_t c, std::int64_t half, int live) {
  f32x16 turned{};
  for (int l = 0; l < live; ++l)
    turned[l] = c + l < half ? -head[c + l + half] : head[c + l - half];
  return turned;
}

// Heads of a row, normalised each where there is a weight, and turned.
//
// n: rows, heads, head_dim, stride of x, stride of cos and sin. f: eps. p: x [rows, heads * dim],
// cos, sin [rows, dim], weight [heads, dim] or null, y [rows, heads, dim]. kind: 1 for an offset.
template <class T>
void rotate(const Instruction& i, std::uint32_t piece) {
  std::int64_t heads = i.n[1], dim = i.n[2], half = dim / 2;
  std::int64_t end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  std::size_t size = i.kind == 1 ? sizeof(float) : sizeof(T);
  alignas(64) float head[1024];
  for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
    const T* cos = (const T*)i.p[1] + row * i.n[4];
    const T* sin = (const T*)i.p[2] + row * i.n[4];
    for (std::int64_t h = 0; h < heads; ++h) {
      const T* x = (const T*)i.p[0] + row * i.n[3] + h * dim;
      T* y = (T*)i.p[4] + (row * heads + h) * dim;
      const char* weight = i.p[3] ? (const char*)i.p[3] + h * dim * size : nullptr;
      float inverse = weight ? inverse_rms(x, dim, i.f[0]) : 1.0f;
      along(dim, [&](std::int64_t c, int live) {
        f32x16 v = take(x + c, live);
        if (weight) v = as_stored<T>(weighted<T>(v * inverse, weight, c, live, i.kind == 1));
        put(head + c, v, live);
      });
      along(dim, [&](std::int64_t c, int live) {
        f32x16 turned =
            half % LANES ? quarter_turn(head, c, half, live) : quarter_turn(head, c, half);
        f32x16 straight = as_stored<T>(take(head + c, live) * take(cos + c, live));
        put(y + c, straight + as_stored<T>(turned * take(sin + c, live)), live);
      });
    }
  }
}

enum Activation { SILU = 0, GELU_TANH = 1, GELU = 2, QUICK_GELU = 3 };

// Abramowitz and Stegun 7.1.26: to 1.5e-7.
inline f32x16 erf(f32x16 x) {
  f32x16 size = x < 0.0f ? -x : x, t = 1.0f / (size * 0.3275911f + 1.0f);
  f32x16 p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  f32x16 y = 1.0f - p * t * exp(-size * size);
  return x < 0.0f ? -y : y;
}

template <int KIND>
inline f32x16 activated(f32x16 x) {
  if constexpr (KIND == SILU) return x * reciprocal(exp(-x) + 1.0f);
  if constexpr (KIND == QUICK_GELU) return x * reciprocal(exp(x * -1.702f) + 1.0f);
  if constexpr (KIND == GELU) return x * 0.5f * (erf(x * 0.70710678f) + 1.0f);
  f32x16 inner = (x + x * x * x * 0.044715f) * 0.7978845608f;
  f32x16 tanh = 1.0f - 2.0f * reciprocal(exp(inner * 2.0f) + 1.0f);
  return x * 0.5f * (tanh + 1.0f);
}

// Calls fn<KIND>(): the choice is made once for many numbers.
template <class Fn>
inline void with_activation(int kind, Fn fn) {
  switch (kind) {
    case SILU: return fn.template operator()<SILU>();
    case QUICK_GELU: return fn.template operator()<QUICK_GELU>();
    case GELU: return fn.template operator()<GELU>();
    default: return fn.template operator()<GELU_TANH>();
  }
}

// n: rows, width, stride of x, stride of y. p: x, y. kind: Activation.
template <class T>
void activate(const Instruction& i, std::uint32_t piece) {
  std::int64_t end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  with_activation(i.kind, [&]<int KIND>() {
    for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
      const T* x = (const T*)i.p[0] + row * i.n[2];
      T* y = (T*)i.p[1] + row * i.n[3];
      along(i.n[1], [&](std::int64_t c, int live) {
        put(y + c, activated<KIND>(take(x + c, live)), live);
      });
    }
  });
}

// n: rows, width, stride of x, stride of y. p: x [rows, 2 * width], gate then up, y. kind: Activation.
template <class T>
void gate(const Instruction& i, std::uint32_t piece) {
  std::int64_t width = i.n[1], end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  with_activation(i.kind, [&]<int KIND>() {
    for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
      const T* x = (const T*)i.p[0] + row * i.n[2];
      T* y = (T*)i.p[1] + row * i.n[3];
      along(width, [&](std::int64_t c, int live) {
        f32x16 open = as_stored<T>(activated<KIND>(take(x + c, live)));
        put(y + c, open * take(x + width + c, live), live);
      });
    }
  });
}

// Equal to torch's sum bit for bit: it takes its place in graphs.
//
// n: rows, width, strides of a, b and y. p: a, b, y.
template <class T>
void add(const Instruction& i, std::uint32_t piece) {
  std::int64_t end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, i.n[0]);
  for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row) {
    const T* a = (const T*)i.p[0] + row * i.n[2];
    const T* b = (const T*)i.p[1] + row * i.n[3];
    T* y = (T*)i.p[2] + row * i.n[4];
    along(i.n[1], [&](std::int64_t c, int live) {
      f32x16 sum = take(a + c, live) + take(b + c, live);
      if (live == LANES) store_exactly(y + c, sum);
      else store_part(y + c, sum, live);
    });
  }
}

}  // namespace firstlight
