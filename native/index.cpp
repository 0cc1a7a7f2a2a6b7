#include "index.h"

#include <limits>

#include "require.h"

namespace erlangen {
namespace {

constexpr int64_t kLongRun = 4;  // runs that are longer on average stay runs; shorter ones become single indices

std::vector<int64_t> check_indptr(const Span<int64_t>& indptr, int64_t relations, int64_t rows, int64_t entries) {
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

PairIndex::PairIndex(int64_t queries_, int64_t keys_, int64_t relations_, const Span<int64_t>& which)
    : queries(queries_), keys(keys_), relations(relations_), which_(which.data, which.data + which.size) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() - kTile;
  require(queries >= 0 && queries <= most && keys >= 0 && keys <= most, "the number of queries or keys is out of range");
  require(relations >= 1, "at least one relation is needed");
  require(which.shape.size() == 2 && which.size >= 1, "which must have shape (batch or 1, heads or 1)");
  batch_ = which.shape[0];
  heads_ = which.shape[1];
  for (int64_t n = 0; n < which.size; ++n)
    require(which.data[n] >= 0 && which.data[n] < relations, "which names a relation that is not there");
}

void PairIndex::apply(Problem& p) const {
  require(queries == p.queries && keys == p.keys, "the index was built for other lengths");
  require((batch_ == 1 || batch_ == p.batch) && (heads_ == 1 || heads_ == p.heads),
          "the index was built for another batch size or number of heads");
  p.which = which_.data();
  p.which_batch = batch_ == 1 ? 0 : heads_;
  p.which_head = heads_ == 1 ? 0 : 1;
}

TileIndex::TileIndex(int64_t queries_, int64_t keys_, int64_t relations_, const Span<int64_t>& indptr,
                     const Span<int64_t>& columns, const Span<int64_t>& pattern, const Span<uint64_t>& patterns,
                     const Span<int64_t>& which)
    : PairIndex(queries_, keys_, relations_, which) {
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

void TileIndex::apply(Problem& p) const {
  PairIndex::apply(p);
  require(!p.per_edge && !p.vector, "tiles take neither a vector nor a bias of edges");
  p.tiles = {(queries + kTile - 1) / kTile, indptr_.data(), columns_.data(), pattern_.data(), patterns_.data()};
}

RunIndex::RunIndex(int64_t queries_, int64_t keys_, int64_t relations_, const Span<int64_t>& indptr,
                   const Span<int64_t>& starts, const Span<int64_t>& stops, const Span<int64_t>& which)
    : PairIndex(queries_, keys_, relations_, which) {
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

void RunIndex::apply(Problem& p) const {
  PairIndex::apply(p);
  require(!p.per_edge || relations == 1, "a bias of edges needs one relation for all heads and items");
  p.edges = pairs;
  p.runs = view();
}

RunView RunIndex::view() const {
  return {queries, indptr_.data(), starts_.data(), stops_.empty() ? nullptr : stops_.data(), before_.data()};
}

TripleIndex::TripleIndex(int64_t n_, const Span<int64_t>& indptr, const Span<int64_t>& first,
                         const Span<int64_t>& second)
    : n(n_) {
  const int64_t triples = first.size;
  require(n >= 0 && n < std::numeric_limits<int32_t>::max(), "the number of positions is out of range");
  require(indptr.size == n + 1 && indptr.data[0] == 0 && indptr.data[n] == first.size,
          "indptr must have one entry per query, plus one, from 0 to the number of triples");
  require(first.size == second.size, "every triple needs a first and a second key");
  for (int64_t i = 0; i < n; ++i) require(indptr.data[i] <= indptr.data[i + 1], "indptr must not decrease");
  for (int64_t t = 0; t < triples; ++t)
    require(first.data[t] >= 0 && first.data[t] < n && second.data[t] >= 0 && second.data[t] < n,
            "a key of a triple is out of range");
  for (int place = 0; place < 3; ++place) {
    indptr_[place].assign(static_cast<size_t>(n + 1), 0);
    a_[place].assign(static_cast<size_t>(triples + kAhead), 0);
    b_[place].assign(static_cast<size_t>(triples + kAhead), 0);
  }
  indptr_[0].assign(indptr.data, indptr.data + indptr.size);
  for (int64_t t = 0; t < triples; ++t) {
    a_[0][t] = static_cast<int32_t>(first.data[t]);
    b_[0][t] = static_cast<int32_t>(second.data[t]);
  }
  // A counting sort by either key keeps the order of the queries.
  for (int place = 1; place < 3; ++place) {
    const auto& own = place == 1 ? a_[0] : b_[0];
    const auto& other = place == 1 ? b_[0] : a_[0];
    auto& ends = indptr_[place];
    for (int64_t t = 0; t < triples; ++t) ++ends[own[t] + 1];
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
