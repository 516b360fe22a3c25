// Attention of single rows over paged memory: each row scans the keys that it sees.
//
// A context is taken in splits of fixed length at fixed positions, each with its own maximum and sum
// (Milakov and Gimelshein 2018, arXiv:1805.02867; split as in FlashDecoding), so that few requests
// keep all threads busy and a row's result depends on its own context alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "elementwise.h"
#include "instruction.h"
#include "vectors.h"

namespace firstlight {

constexpr int FEWEST_ROWS = 8;  // of a request, from which on tiles.h computes them

// The fourth fact of a request: the token slot of the first position that its rows see, if these lie
// in one run; SCATTERED if not. Few rows that are a prompt's, which tiles.h computes as well, have
// PROMPT - slot, or PROMPT + 1. So a prompt's rows are computed alike in chunks of any length.
constexpr std::int64_t SCATTERED = -1, PROMPT = -3;
inline bool of_prompt(const std::int64_t* facts) { return facts[3] < SCATTERED; }
inline bool in_tiles(const std::int64_t* facts) {
  return facts[1] >= FEWEST_ROWS || of_prompt(facts);
}
inline std::int64_t run_of(const std::int64_t* facts) {
  return of_prompt(facts) ? PROMPT - facts[3] : facts[3];
}

// n: rows, kv heads, key dim, value dim, strides of k (row, head), of v (row, head), of the key pool
// (slot, head), of the value pool (slot, head). p: k, v, key pool, value pool, write_locations.
template <class T>
void store_kv(const Instruction& i, std::uint32_t piece) {
  const auto* n = i.n;
  const auto* locations = (const std::int64_t*)i.p[4];
  std::int64_t end = std::min<std::int64_t>((piece + 1) * ROWS_OF_A_PIECE, n[0]);
  for (std::int64_t row = std::int64_t(piece) * ROWS_OF_A_PIECE; row < end; ++row)
    for (std::int64_t h = 0; h < n[1]; ++h) {
      std::int64_t slot = locations[row];
      std::memcpy((T*)i.p[2] + slot * n[8] + h * n[9], (const T*)i.p[0] + row * n[4] + h * n[5],
                  n[2] * sizeof(T));
      std::memcpy((T*)i.p[3] + slot * n[10] + h * n[11], (const T*)i.p[1] + row * n[6] + h * n[7],
                  n[3] * sizeof(T));
    }
}

// n: rows of q, kv heads, group, key dim, value dim, strides of q (row, head), of the key pool
// (slot, head), of the value pool (slot, head), requests, pages of a table row, page size, length of
// a split, splits. f: scale, window (0: none). kind: 1 if row i of q is the last row of request i.
// p: q, key pool, value pool, page_table, attention_rows, block_bounds or null, partial results, out.
struct Attend {
  const Instruction& i;
  std::int64_t rows, kv_heads, group, key_dim, value_dim, requests, max_pages, page_size, split,
      splits, window;

  explicit Attend(const Instruction& from)
      : i(from), rows(from.n[0]), kv_heads(from.n[1]), group(from.n[2]), key_dim(from.n[3]),
        value_dim(from.n[4]), requests(from.n[11]), max_pages(from.n[12]), page_size(from.n[13]),
        split(from.n[14]), splits(from.n[15]), window(std::int64_t(from.f[1])) {}

  // A partial result: weighted values, padded to whole vectors, then maximum and sum.
  std::int64_t wide() const { return (value_dim + LANES - 1) / LANES * LANES; }
  float* partial(std::int64_t row, std::int64_t head, std::int64_t s) const {
    return (float*)i.p[6] + ((row * kv_heads * group + head) * splits + s) * (wide() + LANES);
  }

  // What a row sees: keys [begin, end) of its request, whose position 0 is at `slot` if that is
  // known, else its pages are looked up. A row of no request sees nothing.
  struct Sight {
    std::int64_t begin = 0, end = 0, slot = 0;
    const std::int32_t* pages = nullptr;  // null: one run
    bool tiled = false;                   // whether tiles.h computes it
    bool live() const { return end > begin; }
  };

  Sight sight(std::int64_t row) const {
    const auto* facts = (const std::int64_t*)i.p[4];
    for (std::int64_t r = 0; r < requests; ++r, facts += 4) {
      std::int64_t first = facts[0], count = facts[1], context = facts[2], run = run_of(facts);
      if (count == 0) break;
      std::int64_t own;  // position of the row
      if (i.kind == 1) {
        if (row != r) continue;
        own = context - 1;
      } else {
        if (row < first || row >= first + count) continue;
        own = context - count + row - first;
      }
      Sight s;
      s.end = own + 1;
      s.tiled = i.kind == 0 && in_tiles(facts);
      if (i.p[5] != nullptr && i.kind == 0) {
        const auto* bounds = (const std::int64_t*)i.p[5] + row * 2;
        s.end = std::max(s.end, bounds[1]);
      }
      s.begin = window ? std::max<std::int64_t>(own - window + 1, 0) : 0;
      if (run >= 0) {
        std::int64_t seen = window ? std::max<std::int64_t>(context - count - window + 1, 0) : 0;
        s.slot = run - seen;
      } else {
        s.pages = (const std::int32_t*)i.p[3] + r * max_pages;
      }
      return s;
    }
    return {};
  }

  // Whether any of the rows [begin, end) is none that tiles.h computes.
  bool has_short_requests(std::int64_t begin, std::int64_t end) const {
    const auto* facts = (const std::int64_t*)i.p[4];
    for (std::int64_t r = 0; r < requests && facts[1] != 0; ++r, facts += 4)
      if (!in_tiles(facts) && facts[0] < end && facts[0] + facts[1] > begin) return true;
    return false;
  }

  std::int64_t slot_of(const Sight& s, std::int64_t position) const {
    if (s.pages == nullptr) return s.slot + position;
    return std::int64_t(s.pages[position / page_size]) * page_size + position % page_size;
  }
};

// Scores of G queries (float32, [G][key_dim]) with the keys of [begin, end).
template <class T, int G>
inline void score(const Attend& a, const Attend::Sight& s, const T* keys, const float* q,
                  std::int64_t begin, std::int64_t end, float* scores) {
  for (std::int64_t j = begin; j < end; ++j) {
    const T* key = keys + a.slot_of(s, j) * a.i.n[7];
    f32x16 acc[G] = {};
    along(a.key_dim, [&](std::int64_t c, int live) {
      f32x16 k = take(key + c, live);
      for (int g = 0; g < G; ++g) acc[g] += k * take(q + g * a.key_dim + c, live);
    });
    for (int g = 0; g < G; ++g) scores[g * a.split + j - begin] = sum(acc[g]) * float(a.i.f[0]);
  }
}

// Adds the values of [begin, end), weighted, for G queries; VECTORS of the value at a time.
template <class T, int G, int VECTORS>
inline void weigh(const Attend& a, const Attend::Sight& s, const T* values, const float* weights,
                  std::int64_t begin, std::int64_t end, std::int64_t column, float* const* out) {
  f32x16 acc[G][VECTORS] = {};
  int last = int(std::min<std::int64_t>(LANES, a.value_dim - column - (VECTORS - 1) * LANES));
  for (std::int64_t j = begin; j < end; ++j) {
    const T* value = values + a.slot_of(s, j) * a.i.n[9] + column;
    f32x16 v[VECTORS];
    for (int c = 0; c < VECTORS; ++c)
      v[c] = take(value + c * LANES, c + 1 < VECTORS ? LANES : last);
    for (int g = 0; g < G; ++g)
      for (int c = 0; c < VECTORS; ++c) acc[g][c] += v[c] * weights[g * a.split + j - begin];
  }
  for (int g = 0; g < G; ++g)
    for (int c = 0; c < VECTORS; ++c) store(out[g] + column + c * LANES, acc[g][c]);
}

// Turns scores into weights; returns their maximum and sum in the partial result.
inline void soften(float* scores, std::int64_t n, float* ends) {
  float most = -std::numeric_limits<float>::infinity();
  for (std::int64_t j = 0; j < n; ++j) most = std::max(most, scores[j]);
  f32x16 total{};
  along(n, [&](std::int64_t c, int live) {
    f32x16 e = exp(take(scores + c, live) - most);
    if (live < LANES)
      for (int l = live; l < LANES; ++l) e[l] = 0.0f;
    total += e;
    put(scores + c, e, live);
  });
  ends[0] = most;
  ends[1] = sum(total);
}

template <class T, int G>
void attend_group(const Attend& a, const Attend::Sight& s, std::int64_t row, std::int64_t kv,
                  std::int64_t g0, std::int64_t part) {
  std::int64_t begin = std::max(s.begin, part * a.split), end = std::min(s.end, (part + 1) * a.split);
  const T* keys = (const T*)a.i.p[1] + kv * a.i.n[8];
  const T* values = (const T*)a.i.p[2] + kv * a.i.n[10];
  float q[G * 512], scores[G * 1024];
  float* out[G];
  for (int g = 0; g < G; ++g) {
    std::int64_t head = kv * a.group + g0 + g;
    const T* from = (const T*)a.i.p[0] + row * a.i.n[5] + head * a.i.n[6];
    for (std::int64_t c = 0; c < a.key_dim; ++c) q[g * a.key_dim + c] = widen(from[c]);
    out[g] = a.partial(row, head, part);
  }
  score<T, G>(a, s, keys, q, begin, end, scores);
  for (int g = 0; g < G; ++g) soften(scores + g * a.split, end - begin, out[g] + a.wide());
  std::int64_t column = 0;
  for (; column + 4 * LANES <= a.value_dim; column += 4 * LANES)
    weigh<T, G, 4>(a, s, values, scores, begin, end, column, out);
  for (; column < a.value_dim; column += LANES)
    weigh<T, G, 1>(a, s, values, scores, begin, end, column, out);
}

// A piece is a row, a head of keys and a split. Where most rows belong to long requests, which
// tiles.h computes, it is eight rows and each fourth split: to pass over a row costs time as well.
struct AttendPieces {
  std::int64_t rows, kv_heads, each, ways;

  explicit AttendPieces(const Instruction& i) : rows(i.n[0]), kv_heads(i.n[1]) {
    bool few = i.kind == 1 || rows < FEWEST_ROWS;
    each = few ? 1 : ROWS_OF_A_PIECE;
    ways = few ? i.n[15] : std::min<std::int64_t>(i.n[15], 4);
  }
  std::uint32_t count() const { return std::uint32_t((rows + each - 1) / each * kv_heads * ways); }
};

template <class T>
void attend_split(const Attend& a, const Attend::Sight& s, std::int64_t row, std::int64_t kv,
                  std::int64_t part) {
  if (part * a.split >= s.end || (part + 1) * a.split <= s.begin) return;
  std::int64_t g = 0;
  for (; g + 4 <= a.group; g += 4) attend_group<T, 4>(a, s, row, kv, g, part);
  switch (a.group - g) {
    case 3: return attend_group<T, 3>(a, s, row, kv, g, part);
    case 2: return attend_group<T, 2>(a, s, row, kv, g, part);
    case 1: return attend_group<T, 1>(a, s, row, kv, g, part);
  }
}

// One row as tiles.h computes it.
template <class T>
void attend_as_tile(const Attend& a, std::int64_t row, std::int64_t kv);

template <class T>
void attend(const Instruction& i, std::uint32_t piece) {
  Attend a(i);
  AttendPieces pieces(i);
  std::int64_t way = piece % pieces.ways, kv = piece / pieces.ways % a.kv_heads;
  std::int64_t row = piece / pieces.ways / a.kv_heads * pieces.each;
  std::int64_t end = std::min(row + pieces.each, a.rows);
  if (pieces.each > 1 && !a.has_short_requests(row, end)) return;
  for (; row < end; ++row) {
    Attend::Sight s = a.sight(row);
    if (s.tiled) {
      // Where there are few rows in all, no instruction for tiles follows.
      if (a.rows < FEWEST_ROWS && way == 0) attend_as_tile<T>(a, row, kv);
      continue;
    }
    if (!s.live()) continue;
    for (std::int64_t part = way; part < a.splits; part += pieces.ways)
      attend_split<T>(a, s, row, kv, part);
  }
}

// Joins the splits of a row's heads; rows of no request become zero.
template <class T>
void merge_splits(const Instruction& i, std::uint32_t row) {
  Attend a(i);
  Attend::Sight s = a.sight(row);
  if (s.tiled) return;
  std::int64_t heads = a.kv_heads * a.group;
  std::int64_t first = s.begin / a.split, last = (s.end + a.split - 1) / a.split;
  for (std::int64_t h = 0; h < heads; ++h) {
    T* out = (T*)i.p[7] + (row * heads + h) * a.value_dim;
    float most = -std::numeric_limits<float>::infinity(), total = 0.0f;
    if (!s.live()) last = first;
    for (std::int64_t p = first; p < last; ++p)
      most = std::max(most, a.partial(row, h, p)[a.wide()]);
    for (std::int64_t p = first; p < last; ++p) {
      const float* ends = a.partial(row, h, p) + a.wide();
      total += ends[1] * std::exp(ends[0] - most);
    }
    along(a.value_dim, [&](std::int64_t c, int live) {
      f32x16 v{};
      for (std::int64_t p = first; p < last; ++p) {
        const float* from = a.partial(row, h, p);
        v += load<f32x16>(from + c) * std::exp(from[a.wide()] - most);
      }
      put(out + c, s.live() ? v / total : v, live);
    });
  }
}

}  // namespace firstlight
