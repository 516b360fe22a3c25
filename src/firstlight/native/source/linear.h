// y[rows, N] = x[rows, K] w^T (+ bias), the weight in panels of sixteen outputs.
//
// In a panel the sixteen outputs stand beside each other for each k (pairs of k in bfloat16), so
// that a vector of weights meets one value of x and no sum crosses lanes. Each output is summed over
// k in order, in one accumulator: a row's result does not depend on the rows beside it.
//
// kinds, and what a panel holds:
//   FLOAT32   [K][16] float
//   BFLOAT16  [K/2][16][2]
//   INT8, INT4  K/32 blocks, see codes.h
//
// n: rows, K, N, stride of x, stride of y (elements). p: x, w, bias or null, y.
#pragma once

#include <algorithm>

#include "codes.h"
#include "instruction.h"
#include "vectors.h"

namespace firstlight {

enum WeightKind { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, INT4 = 3 };

constexpr int ROWS_AT_ONCE = 8;    // accumulators: rows times panels, beside three weights
constexpr int PANELS_AT_ONCE = 3;
constexpr int ROW_TILE = 64;       // rows of a piece: their x stays in the second-level cache

inline std::int64_t panel_bytes(int kind, std::int64_t k) {
  switch (kind) {
    case FLOAT32: return k * LANES * 4;
    case BFLOAT16: return k * LANES * 2;
    case INT8: return k / BLOCK * Int8::BYTES;
    default: return k / BLOCK * Int4::BYTES;
  }
}

// Adds k values of x to R times P accumulators; `panels` are `apart` bytes from each other.
template <class T, int R, int P>
inline void accumulate(f32x16 (&acc)[R][P], const T* x, std::int64_t ldx, const char* panels,
                       std::int64_t apart, std::int64_t k) {
  using Step = Along<T>;
  for (std::int64_t i = 0; i < k; i += Step::K) {
    typename Step::Weight w[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      w[p] = load<typename Step::Weight>(panels + p * apart + i * LANES * sizeof(T));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) acc[r][p] = Step::add(acc[r][p], w[p], x + r * ldx + i);
  }
}

template <class T>
struct Linear {
  const T* x;
  const char* w;
  const T* bias;
  T* y;
  std::int64_t k, n, ldx, ldy, panel;
  int kind;

  explicit Linear(const Instruction& i)
      : x((const T*)i.p[0]), w((const char*)i.p[1]), bias((const T*)i.p[2]), y((T*)i.p[3]),
        k(i.n[1]), n(i.n[2]), ldx(i.n[3]), ldy(i.n[4]), panel(panel_bytes(i.kind, i.n[1])),
        kind(i.kind) {}

  void finish(const f32x16& acc, std::int64_t row, std::int64_t first) const {
    int live = int(std::min<std::int64_t>(LANES, n - first));
    f32x16 v = acc;
    if (bias != nullptr)
      v += live == LANES ? load16(bias + first) : load_part(bias + first, live);
    if (live == LANES) store16(y + row * ldy + first, v);
    else store_part(y + row * ldy + first, v, live);
  }

  // Lines that results go to are often in no near cache: they come while the sums are made, or the
  // stores would wait for them. (GCC takes a call for one without effect unless it is inlined early.)
  template <int R, int P>
  __attribute__((always_inline)) void expect(std::int64_t row, std::int64_t first) const {
    for (int r = 0; r < R; ++r) {
      const T* to = y + (row + r) * ldy + first;
      __builtin_prefetch(to, 1);
      __builtin_prefetch(to + std::min<std::int64_t>(P * LANES, n - first) - 1, 1);
    }
  }

  // R rows times P panels of plain weights.
  template <int R, int P>
  void tile(std::int64_t row, std::int64_t first) const {
    expect<R, P>(row, first);
    f32x16 acc[R][P] = {};
    accumulate<T, R, P>(acc, x + row * ldx, ldx, w + first / LANES * panel, panel, k);
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) finish(acc[r][p], row + r, first + p * LANES);
  }

  // The same with codes: each block's sum is scaled, and its least value meets the sum of its x,
  // which `totals` holds from `row` on.
  template <class Code, int R, int P>
  void tile_of_codes(std::int64_t row, std::int64_t first, const Wide<T>& wide,
                     const float* totals) const {
    expect<R, P>(row, first);
    f32x16 acc[R][P] = {};
    for (std::int64_t b = 0; b * BLOCK < k; ++b) {
      f32x16 part[R][P] = {};
      const T* from = x + row * ldx + b * BLOCK;
      const char* block = w + first / LANES * panel + b * Code::BYTES;
      if (wide.data != nullptr)
        accumulate<T, R, P>(part, from, ldx, wide.data + b * BLOCK * LANES * sizeof(T), wide.apart,
                            BLOCK);
      else
        accumulate_codes<Code, T, R, P>(part, from, ldx, block, panel);
      for (int p = 0; p < P; ++p) Code::scale(part, acc, p, block + p * panel, totals + b, k / BLOCK);
    }
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) finish(acc[r][p], row + r, first + p * LANES);
  }

  // Calls fn<R>(row) for the rows [begin, end), several at a time.
  template <class Fn>
  static void several(std::int64_t begin, std::int64_t end, Fn fn) {
    std::int64_t r = begin;
    for (; r + ROWS_AT_ONCE <= end; r += ROWS_AT_ONCE) fn.template operator()<ROWS_AT_ONCE>(r);
    if (r + 4 <= end) fn.template operator()<4>(r), r += 4;
    if (r + 2 <= end) fn.template operator()<2>(r), r += 2;
    if (r + 1 <= end) fn.template operator()<1>(r);
  }

  template <class Code, int P>
  void piece_of_codes(std::int64_t begin, std::int64_t end, std::int64_t first,
                      const float* totals, Scratch& scratch) const {
    Wide<T> wide;
    if (end - begin > ROWS_AT_ONCE)  // worth widening once for all rows
      wide = widen<Code, T>(w + first / LANES * panel, panel, P, k, scratch);
    several(begin, end, [&]<int R>(std::int64_t r) {
      tile_of_codes<Code, R, P>(r, first, wide, totals + (r - begin) * (k / BLOCK));
    });
  }

  // Rows [begin, end) of P panels from the output `first` on.
  template <int P>
  void piece(std::int64_t begin, std::int64_t end, std::int64_t first, const float* totals,
             Scratch& scratch) const {
    if (kind == INT8) return piece_of_codes<Int8, P>(begin, end, first, totals, scratch);
    if (kind == INT4) return piece_of_codes<Int4, P>(begin, end, first, totals, scratch);
    // One row waits for memory, which is fastest when it is read in sequence.
    if (P > 1 && end - begin == 1)
      for (int p = 0; p < P; ++p) tile<1, 1>(begin, first + p * LANES);
    else
      several(begin, end, [&]<int R>(std::int64_t r) { tile<R, P>(r, first); });
  }
};

// A piece is a tile of rows times a few panels; those of a tile follow each other.
struct LinearPieces {
  std::int64_t rows, panels, per_piece, across;

  explicit LinearPieces(const Instruction& i)
      : rows(i.n[0]), panels((i.n[2] + LANES - 1) / LANES),
        per_piece(PANELS_AT_ONCE * (rows < ROWS_AT_ONCE || i.kind == INT4 ? 2 : 1)),
        across((panels + per_piece - 1) / per_piece) {}

  std::uint32_t count() const {
    return std::uint32_t(across * ((rows + ROW_TILE - 1) / ROW_TILE));
  }
};

template <class T>
void linear(const Instruction& i, std::uint32_t piece, Scratch& scratch) {
  Linear<T> op(i);
  LinearPieces pieces(i);
  std::int64_t begin = piece / pieces.across * ROW_TILE;
  std::int64_t end = std::min(begin + ROW_TILE, pieces.rows);
  std::int64_t p = piece % pieces.across * pieces.per_piece;
  std::int64_t last = std::min(p + pieces.per_piece, pieces.panels);
  const float* totals = nullptr;
  if (i.kind == INT4)
    totals = block_totals(op.x + begin * op.ldx, op.ldx, end - begin, op.k, scratch);
  for (; p + PANELS_AT_ONCE <= last; p += PANELS_AT_ONCE)
    op.template piece<PANELS_AT_ONCE>(begin, end, p * LANES, totals, scratch);
  for (; p < last; ++p) op.template piece<1>(begin, end, p * LANES, totals, scratch);
}

}  // namespace firstlight
