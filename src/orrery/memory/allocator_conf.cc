#include "orrery/memory/allocator_conf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::memory {
namespace {

constexpr std::array<std::string_view, 8> kKeys = {
    "expandable_segments",         "max_split_size_mb",
    "max_non_split_rounding_mb",   "large_segment_size_mb",
    "roundup_power2_divisions",    "garbage_collection_threshold",
    "per_process_memory_fraction", "backend"};
// They change host memory, locks or what is captured, never what a training step reserves.
constexpr std::array<std::string_view, 11> kWithoutEffect = {
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "pinned_reserve_segment_size_mb",
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class"};

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end;
}

// Cuts `text` at commas outside of brackets.
std::vector<std::string_view> Entries(std::string_view text) {
  std::vector<std::string_view> entries;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > begin) entries.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']') {
      --depth;
    }
  }
  return entries;
}

Status BadValue(std::string_view key, std::string_view value, std::string_view wanted) {
  return InvalidInput("{}:{}: {}", key, Printable(value), wanted);
}

Status ParseMegabytes(std::string_view key, std::string_view value, std::int64_t least,
                      std::int64_t* bytes) {
  std::int64_t mb = 0;
  if (!ParseNumber(value, &mb) || mb < least || mb > (1 << 20)) {
    return BadValue(key, value, fmt::format("a whole number of MiB from {}", least));
  }
  *bytes = mb << 20;
  return {};
}

Status ParseDivisions(std::string_view value, std::array<std::int32_t, 16>* divisions) {
  constexpr std::string_view kKey = "roundup_power2_divisions";
  constexpr std::string_view kWanted =
      "a power of two, or a list of size in MiB and divisions such as [256:1,512:2,>:4]";
  const auto power = [](std::string_view text, std::int32_t* number) {
    return ParseNumber(text, number) && *number >= 0 && *number <= (1 << 16) &&
           (*number & (*number - 1)) == 0;
  };
  std::int32_t number = 0;
  if (power(value, &number)) {
    divisions->fill(number);
    return {};
  }
  if (value.size() < 2 || value.front() != '[' || value.back() != ']') {
    return BadValue(kKey, value, kWanted);
  }
  std::size_t next = 0;  // the first step that no entry has set
  for (const std::string_view entry : Entries(value.substr(1, value.size() - 2))) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos || !power(entry.substr(colon + 1), &number)) {
      return BadValue(kKey, value, kWanted);
    }
    const std::string_view size = entry.substr(0, colon);
    if (size == ">") {
      std::fill(divisions->begin() + static_cast<std::ptrdiff_t>(next), divisions->end(), number);
      continue;
    }
    std::int32_t mb = 0;
    if (!power(size, &mb) || mb == 0) return BadValue(kKey, value, kWanted);
    const auto step = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(mb)) - 1);
    if (step >= divisions->size()) return BadValue(kKey, value, kWanted);
    if (next == 0) std::fill_n(divisions->begin(), step, number);
    (*divisions)[step] = number;
    next = step + 1;
  }
  return {};
}

Status ParseFraction(std::string_view key, std::string_view value, double* fraction) {
  if (!ParseNumber(value, fraction) || !(*fraction > 0) || *fraction > 1) {
    return BadValue(key, value, "a fraction above 0, at most 1");
  }
  return {};
}

Status ParseEntry(std::string_view key, std::string_view value, AllocatorSettings* settings) {
  if (key == "expandable_segments") {
    if (value != "True" && value != "False") return BadValue(key, value, "True or False");
    settings->expandable_segments = value == "True";
    return {};
  }
  if (key == "max_split_size_mb") {
    return ParseMegabytes(key, value, 20, &settings->max_split_bytes);
  }
  if (key == "max_non_split_rounding_mb") {
    return ParseMegabytes(key, value, 20, &settings->max_non_split_rounding_bytes);
  }
  if (key == "large_segment_size_mb") {
    return ParseMegabytes(key, value, 2, &settings->large_segment_bytes);
  }
  if (key == "roundup_power2_divisions") {
    return ParseDivisions(value, &settings->roundup_power2_divisions);
  }
  if (key == "garbage_collection_threshold") {
    return ParseFraction(key, value, &settings->garbage_collection_threshold);
  }
  if (key == "per_process_memory_fraction") {
    return ParseFraction(key, value, &settings->memory_fraction);
  }
  if (key == "backend") {
    if (value == "native") return {};
    return BadValue(key, value, "only the native allocator is modelled");
  }
  if (std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end()) {
    return {};
  }
  return InvalidInput("{}", UnknownName("allocator setting", key, kKeys));
}

}  // namespace

Result<AllocatorSettings> ParseAllocatorConf(std::string_view text) {
  AllocatorSettings settings;
  std::string packed;
  for (const char c : text) {
    if (c != ' ' && c != '\t') packed.push_back(c);
  }
  for (const std::string_view entry : Entries(packed)) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) {
      return InvalidInput("'{}' has no value; settings are key:value, separated by commas",
                          Printable(entry));
    }
    ORRERY_RETURN_IF_ERROR(ParseEntry(entry.substr(0, colon), entry.substr(colon + 1), &settings));
  }
  return settings;
}

}  // namespace orrery::memory
