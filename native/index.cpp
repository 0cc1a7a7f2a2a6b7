#include "index.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace erlangen {
namespace {

constexpr int64_t kLongRun = 4;  // runs that are longer on average stay runs; shorter ones become single indices

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

void check_sizes(int64_t queries, int64_t keys, int64_t relations) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() - kTile;
  require(queries >= 0 && queries <= most && keys >= 0 && keys <= most, "the number of queries or keys is out of range");
  require(relations >= 1, "at least one relation is needed");
}

std::vector<int64_t> check_indptr(Span<int64_t> indptr, int64_t relations, int64_t rows, int64_t entries) {
  require(indptr.size == relations * (rows + 1), "indptr must have one entry per row of each relation, plus one each");
  for (int64_t x = 0; x < relations; ++x)
    for (int64_t r = 0; r <= rows; ++r) {
      const int64_t here = indptr.data[x * (rows + 1) + r];
      require(here >= 0 && here <= entries, "an entry of indptr is out of range");
      require(r == 0 || here >= indptr.data[x * (rows + 1) + r - 1], "indptr must not decrease in a relation");
    }
  return {indptr.data, indptr.data + indptr.size};
}

}  // namespace

Which::Which(Span<int64_t> which, int64_t batch, int64_t heads, int64_t relations) : batch_(batch), heads_(heads) {
  require(batch >= 1 && heads >= 1 && which.size == batch * heads, "which must have shape (batch or 1, heads or 1)");
  for (int64_t n = 0; n < which.size; ++n)
    require(which.data[n] >= 0 && which.data[n] < relations, "which names a relation that is not there");
  which_.assign(which.data, which.data + which.size);
}

void Which::apply(Problem& p) const {
  require((batch_ == 1 || batch_ == p.batch) && (heads_ == 1 || heads_ == p.heads),
          "the index was built for another batch size or number of heads");
  p.which = which_.data();
  p.which_batch = batch_ == 1 ? 0 : heads_;
  p.which_head = heads_ == 1 ? 0 : 1;
}

TileIndex::TileIndex(int64_t queries_, int64_t keys_, int64_t relations_, Span<int64_t> indptr, Span<int64_t> columns,
                     Span<int64_t> pattern, Span<uint64_t> patterns)
    : queries(queries_), keys(keys_), relations(relations_) {
  check_sizes(queries, keys, relations);
  const int64_t rows = (queries + kTile - 1) / kTile, blocks = (keys + kTile - 1) / kTile;
  indptr_ = check_indptr(indptr, relations, rows, columns.size);
  require(pattern.size == columns.size, "every tile needs a column and a pattern");
  require(patterns.size % kTile == 0, "a pattern must have 64 words");
  const int64_t count = patterns.size / kTile;
  for (int64_t t = 0; t < columns.size; ++t) {
    require(columns.data[t] >= 0 && columns.data[t] < blocks, "the column of a tile is out of range");
    require(pattern.data[t] >= -1 && pattern.data[t] < count, "the pattern of a tile is out of range");
  }
  columns_.assign(columns.data, columns.data + columns.size);
  pattern_.assign(pattern.data, pattern.data + pattern.size);
  // The kernels have queries in lanes: they want, for each key, the word of its queries.
  patterns_.assign(static_cast<size_t>(patterns.size), 0);
  for (int64_t x = 0; x < count; ++x)
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j)
        patterns_[x * kTile + j] |= (patterns.data[x * kTile + i] >> j & 1) << i;
  for (int64_t x = 0; x < relations; ++x)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = indptr_[x * (rows + 1) + r]; t < indptr_[x * (rows + 1) + r + 1]; ++t) {
        require(t == indptr_[x * (rows + 1) + r] || columns_[t] > columns_[t - 1],
                "the columns of a block row must increase");
        const int64_t valid = queries - r * kTile;
        if (pattern_[t] < 0 || valid >= kTile) continue;
        for (int j = 0; j < kTile; ++j)
          require((patterns_[int64_t{pattern_[t]} * kTile + j] >> valid) == 0, "a pattern has a query out of range");
      }
}

TileView TileIndex::view() const {
  return {(queries + kTile - 1) / kTile, indptr_.data(), columns_.data(), pattern_.data(), patterns_.data()};
}

RunIndex::RunIndex(int64_t queries_, int64_t keys_, int64_t relations_, Span<int64_t> indptr, Span<int64_t> starts,
                   Span<int64_t> stops)
    : queries(queries_), keys(keys_), relations(relations_) {
  check_sizes(queries, keys, relations);
  indptr_ = check_indptr(indptr, relations, queries, starts.size);
  require(starts.size == stops.size, "every run needs a start and a stop");
  for (int64_t r = 0; r < starts.size; ++r)
    require(starts.data[r] >= 0 && starts.data[r] < stops.data[r] && stops.data[r] <= keys, "a run is out of range");
  for (int64_t r = 0; r < starts.size; ++r) pairs += stops.data[r] - starts.data[r];
  before_.assign(static_cast<size_t>(queries) + 1, 0);
  for (int64_t i = 0; i < queries; ++i) {
    before_[i + 1] = before_[i];
    for (int64_t r = indptr_[i]; r < indptr_[i + 1]; ++r) before_[i + 1] += stops.data[r] - starts.data[r];
  }
  if (pairs > kLongRun * starts.size) {
    starts_.assign(starts.data, starts.data + starts.size);
    stops_.assign(stops.data, stops.data + stops.size);
    return;
  }
  starts_.reserve(static_cast<size_t>(pairs + kAhead));
  std::vector<int64_t> before(static_cast<size_t>(starts.size) + 1);
  for (int64_t r = 0; r < starts.size; ++r) {
    before[r] = static_cast<int64_t>(starts_.size());
    for (int64_t j = starts.data[r]; j < stops.data[r]; ++j) starts_.push_back(static_cast<int32_t>(j));
  }
  before[starts.size] = pairs;
  for (int64_t& entry : indptr_) entry = before[entry];
  starts_.resize(static_cast<size_t>(pairs + kAhead), 0);
}

RunView RunIndex::view() const {
  return {queries, indptr_.data(), starts_.data(), stops_.empty() ? nullptr : stops_.data(), before_.data()};
}

}  // namespace erlangen
