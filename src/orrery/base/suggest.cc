#include "orrery/base/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace orrery {
namespace {

// Kinds that 'orrery list' shows.
constexpr std::string_view kListed[] = {"model", "cluster", "device", "framework"};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool BeginsWith(std::string_view text, std::string_view start) {
  if (start.empty() || start.size() > text.size()) return false;
  return std::equal(start.begin(), start.end(), text.begin(),
                    [](char a, char b) { return Lower(a) == Lower(b); });
}

// The `count` of `valid` with the fewest edits, however many, ties in the order given.
std::vector<std::string_view> Closest(std::string_view name,
                                      std::span<const std::string_view> valid, std::size_t count) {
  // Of a name longer than any that is valid its beginning says what is near.
  constexpr std::size_t kLongest = 100;
  std::vector<std::pair<std::size_t, std::string_view>> all;
  for (const std::string_view v : valid) {
    all.emplace_back(BeginsWith(v, name) ? 0 : EditDistance(name.substr(0, kLongest), v), v);
  }
  std::ranges::stable_sort(all, {}, &std::pair<std::size_t, std::string_view>::first);
  std::vector<std::string_view> closest;
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) closest.push_back(all[i].second);
  return closest;
}

}  // namespace

std::size_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the table: rows i - 2, i - 1 and i.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0u : 1u)});
      if (i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
          Lower(a[i - 2]) == Lower(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> Nearest(std::string_view name, std::span<const std::string_view> valid,
                                 std::size_t limit) {
  std::vector<std::pair<std::size_t, std::size_t>> near;  // distance, index
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const std::size_t longer = std::max(name.size(), valid[i].size());
    const std::size_t allowed = std::max<std::size_t>(1, longer / 3);
    const std::size_t missing = longer - std::min(name.size(), valid[i].size());
    if (missing > allowed && !BeginsWith(valid[i], name)) continue;  // that many edits at least
    const std::size_t distance = EditDistance(name, valid[i]);
    if (distance <= allowed || BeginsWith(valid[i], name)) near.emplace_back(distance, i);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(limit, near.size()); ++i) {
    names.emplace_back(valid[near[i].second]);
  }
  return names;
}

std::string UnknownName(std::string_view kind, std::string_view name,
                        std::span<const std::string_view> valid) {
  std::string text = fmt::format("unknown {} '{}'; ", kind, name);
  const std::vector<std::string> near = Nearest(name, valid, 3);
  if (!near.empty()) text += fmt::format("did you mean '{}'? ", fmt::join(near, "' or '"));
  constexpr std::size_t kMostNames = 30, kFewNames = 8;
  if (valid.size() <= kMostNames) return text + fmt::format("valid: {}", fmt::join(valid, ", "));
  const auto listed = std::ranges::find(kListed, kind);
  if (listed != std::end(kListed) && near.empty()) {
    return text + fmt::format("'orrery list {}s' has all {}", kind, valid.size());
  }
  text += fmt::format("of {} valid ones the nearest: {}", valid.size(),
                      fmt::join(Closest(name, valid, kFewNames), ", "));
  return listed == std::end(kListed) ? text
                                     : text + fmt::format("; 'orrery list {}s' has all", kind);
}

}  // namespace orrery
