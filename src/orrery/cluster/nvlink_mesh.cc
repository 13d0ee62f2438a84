#include "orrery/cluster/nvlink_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/base/units.h"

namespace orrery::cluster {
namespace {

constexpr int kMostLinks = 1000;      // between two GPUs
constexpr int kMostRings = 64;        // more than NCCL has channels
constexpr int kSearchSteps = 20'000;  // visits of a GPU, of all tries together

// Fills rings one after the other, each by the links of which most are left, and goes back where a
// ring does not close.
class Search {
 public:
  Search(std::vector<std::uint16_t> left, std::size_t gpus, std::size_t most)
      : left_(std::move(left)), gpus_(gpus), most_(most) {}

  std::vector<std::vector<std::uint32_t>> Run() {
    rings_.assign(1, {0});
    Next();
    return std::move(best_);
  }

 private:
  std::uint16_t& Left(std::uint32_t a, std::uint32_t b) { return left_[a * gpus_ + b]; }

  // From the last GPU of the last ring on. True: no better answer is to be looked for.
  bool Next() {
    if (++steps_ > kSearchSteps) return true;
    const std::vector<std::uint32_t> ring = rings_.back();
    const std::uint32_t here = ring.back();
    if (ring.size() == gpus_) {
      if (Left(here, 0) == 0) return false;
      --Left(here, 0);
      if (rings_.size() > best_.size()) best_ = rings_;
      bool done = best_.size() == most_;
      if (!done) {
        rings_.push_back({0});
        done = Next();
        rings_.pop_back();
      }
      ++Left(here, 0);
      return done;
    }
    std::vector<std::uint32_t> to;
    for (std::uint32_t g = 1; g < gpus_; ++g) {
      if (Left(here, g) > 0 && std::ranges::find(ring, g) == ring.end()) to.push_back(g);
    }
    std::ranges::stable_sort(to, [&](auto a, auto b) { return Left(here, a) > Left(here, b); });
    for (const std::uint32_t g : to) {
      --Left(here, g);
      rings_.back().push_back(g);
      const bool done = Next();
      rings_.back().pop_back();
      ++Left(here, g);
      if (done) return true;
    }
    return false;
  }

  std::vector<std::uint16_t> left_;  // by GPU and GPU
  const std::size_t gpus_, most_;
  int steps_ = 0;
  std::vector<std::vector<std::uint32_t>> rings_, best_;
};

// The number at `*at` of a word such as "0-1:12"; leaves `*at` behind it.
Result<std::int64_t> Number(std::string_view word, std::size_t* at, std::string_view text) {
  const std::size_t begin = *at;
  while (*at < word.size() && word[*at] >= '0' && word[*at] <= '9') ++*at;
  Result<std::int64_t> value = ParseInteger(word.substr(begin, *at - begin));
  if (value.ok()) return value;
  return InvalidInput(
      "pcie_tree.nvlinks = '{}': '{}': must be two GPUs and their links, as in 0-1:12",
      Printable(text, 80), Printable(word, 40));
}

}  // namespace

Result<NvlinkMesh> NvlinkMesh::Parse(std::string_view text, int gpus) {
  NvlinkMesh mesh;
  const auto n = static_cast<std::size_t>(gpus);
  std::vector<std::uint16_t> count(n * n);
  const auto wrong = [&](std::string_view word, std::string_view why) {
    return InvalidInput("pcie_tree.nvlinks = '{}': '{}': {}", Printable(text, 80),
                        Printable(word, 40), why);
  };
  for (std::size_t begin = 0; begin < text.size();) {
    begin = text.find_first_not_of(" ,", begin);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" ,", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    std::size_t at = 0;
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t a, Number(word, &at, text));
    if (at == word.size() || word[at++] != '-') return wrong(word, "must be as in 0-1:12");
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t b, Number(word, &at, text));
    std::int64_t links = 1;
    if (at < word.size() && word[at] == ':') {
      ++at;
      ORRERY_ASSIGN_OR_RETURN(links, Number(word, &at, text));
    }
    if (at != word.size()) return wrong(word, "must be as in 0-1:12");
    if (a >= gpus || b >= gpus) {
      return wrong(word, fmt::format("a host has the GPUs 0 to {}", gpus - 1));
    }
    if (a == b) return wrong(word, "joins a GPU to itself; leave it out");
    if (links < 1 || links > kMostLinks) return wrong(word, "1 to 1000 links join two GPUs");
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    if (count[x * n + y] > 0) return wrong(word, "this pair stands there before; give its sum");
    count[x * n + y] = count[y * n + x] = static_cast<std::uint16_t>(links);
    ++mesh.pairs_;
  }
  if (mesh.pairs_ == 0) return mesh;
  if (gpus > kMostGpus) {
    return InvalidInput(
        "pcie_tree.nvlinks: a host of {} GPUs; up to {} are joined without a switch", gpus,
        kMostGpus);
  }
  mesh.gpus_ = n;
  mesh.index_.resize(n * n);
  std::uint32_t next = 0;
  for (std::size_t a = 0; a < n; ++a) {
    const auto row = std::span(count).subspan(a * n, n);
    mesh.most_ = std::max(mesh.most_, std::accumulate(row.begin(), row.end(), 0));
    for (std::size_t b = 0; b < n; ++b) {
      if (row[b] > 0) mesh.index_[a * n + b] = next++;
    }
  }
  mesh.count_ = std::move(count);
  return mesh;
}

std::vector<std::vector<std::uint32_t>> NvlinkMesh::Rings(
    std::span<const std::uint32_t> gpus) const {
  const std::size_t n = gpus.size();
  if (!any() || n < 2) return {};
  std::vector<std::uint16_t> left(n * n);
  int most = kMostRings;
  for (std::size_t a = 0; a < n; ++a) {
    int own = 0;
    for (std::size_t b = 0; b < n; ++b) {
      if (a == b) continue;
      left[a * n + b] = static_cast<std::uint16_t>(links(gpus[a], gpus[b]));
      own += left[a * n + b];
    }
    most = std::min(most, own);
  }
  if (most == 0) return {};
  auto rings = Search(std::move(left), n, static_cast<std::size_t>(most)).Run();
  for (auto& ring : rings) {
    for (std::uint32_t& member : ring) member = gpus[member];
  }
  return rings;
}

}  // namespace orrery::cluster
