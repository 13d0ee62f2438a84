#include "orrery/cluster/gpu_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "orrery/base/text.h"

namespace orrery::cluster {
namespace {

struct GpuName {
  std::string model;  // "h100", "rtx3090"
  std::string board;  // "pcie", "nvl"; else empty
  std::optional<double> gigabytes;
};

GpuName ReadGpu(std::string_view text) {
  constexpr std::array<std::string_view, 9> kMakers = {
      "nvidia", "amd", "instinct", "tesla", "geforce", "google", "cloud", "aws", "quadro"};
  GpuName name;
  bool model = true;  // words of it are still to come
  const std::string lower = Lower(text.substr(0, text.find('(')));
  for (std::size_t at = 0; at < lower.size();) {
    const auto is_part = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); };
    std::size_t end = at;
    while (end < lower.size() && is_part(lower[end])) ++end;
    const std::string_view word = std::string_view(lower).substr(at, end - at);
    at = end + 1;
    if (word.empty() || std::ranges::find(kMakers, word) != kMakers.end()) continue;
    std::int64_t size = 0;
    const auto number = std::from_chars(word.data(), word.data() + word.size(), size);
    const auto digits = static_cast<std::size_t>(number.ptr - word.data());
    const std::string_view unit = word.substr(digits);
    if (digits > 0 && (unit == "gb" || unit == "g" || unit == "gib")) {
      name.gigabytes = static_cast<double>(size);
      model = false;
    } else if (word.starts_with("pcie")) {
      name.board = "pcie";
      model = false;
    } else if (word.starts_with("nvl")) {  // an H100 NVL is a board, a GB200 NVL72 a rack
      if (word == "nvl") name.board = "nvl";
      model = false;
    } else if (word.starts_with("sxm") || word.starts_with("hbm") || word == "oam") {
      model = false;
    } else if (model) {
      name.model += word;
    }
  }
  return name;
}

}  // namespace

bool HasMemory(const DeviceSpec& device, double gigabytes) {
  const double has = static_cast<double>(device.memory_bytes) / (1 << 30);
  return gigabytes > has / 1.15 && gigabytes < has * 1.15;
}

const DeviceSpec* FindGpu(std::string_view name, std::optional<double> gigabytes,
                          const Catalog& catalog) {
  constexpr std::size_t kShortest = 4;  // letters that the end of a name must have
  const GpuName gpu = ReadGpu(name);
  if (gpu.model.empty()) return nullptr;
  if (!gigabytes) gigabytes = gpu.gigabytes;
  for (const bool whole : {true, false}) {
    const DeviceSpec* first = nullptr;
    for (const std::string& board : {gpu.board, std::string()}) {
      for (const DeviceSpec& device : catalog.device_specs()) {
        const GpuName has = ReadGpu(device.name);
        const bool same = whole ? has.model == gpu.model
                                : gpu.model.size() >= kShortest && has.model.ends_with(gpu.model);
        if (!same || has.board != board) continue;
        if (gigabytes && HasMemory(device, *gigabytes)) return &device;
        if (first == nullptr) first = &device;
      }
      if (!gpu.gigabytes && first != nullptr) break;  // its board is named, its memory is not
    }
    if (first != nullptr) return first;
  }
  return nullptr;
}

}  // namespace orrery::cluster
