#include "orrery/workload/layer_sizes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

struct Size {
  std::string_view name;
  std::int64_t& (*of)(LayerSizes&);
};
constexpr std::array<Size, 6> kSizes = {
    {{"heads", [](LayerSizes& s) -> std::int64_t& { return s.heads.queries; }},
     {"kv_heads", [](LayerSizes& s) -> std::int64_t& { return s.heads.keys; }},
     {"head_dim", [](LayerSizes& s) -> std::int64_t& { return s.heads.dim; }},
     {"ffn_hidden", [](LayerSizes& s) -> std::int64_t& { return s.ffn_hidden; }},
     {"compress", [](LayerSizes& s) -> std::int64_t& { return s.compress; }},
     {"borrows_keys", [](LayerSizes& s) -> std::int64_t& { return s.borrows_keys; }}}};

constexpr std::size_t kMostLayers = 10'000;

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = std::min(text.find(at), text.size());
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.push_back(part);
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<std::int64_t> Whole(std::string_view text) {
  std::int64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && at == text.data() + text.size() && number > 0 && number < 1 << 30) {
    return number;
  }
  return InvalidInput("'{}' is no whole number from 1; write runs as 4*ffn_hidden=5376",
                      Printable(text, 40));
}

Status ReadSize(std::string_view text, LayerSizes* sizes) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, equals);
  for (const Size& size : kSizes) {
    if (size.name != name || equals == text.size()) continue;
    ORRERY_ASSIGN_OR_RETURN(size.of(*sizes), Whole(text.substr(equals + 1)));
    return {};
  }
  constexpr std::string_view kNames[] = {"heads",      "kv_heads", "head_dim",
                                         "ffn_hidden", "compress", "borrows_keys"};
  return InvalidInput("{}; write runs as 4*ffn_hidden=5376",
                      UnknownName("size", Printable(name, 40), kNames));
}

}  // namespace

Result<std::vector<LayerSizes>> ParseLayerSizes(std::string_view text) {
  std::vector<LayerSizes> layers;
  for (const std::string_view run : Split(text, ',')) {
    const std::size_t star = std::min(run.find('*'), run.size());
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t count, Whole(run.substr(0, star)));
    LayerSizes sizes;
    if (star < run.size()) {
      for (const std::string_view size : Split(run.substr(star + 1), '+')) {
        ORRERY_RETURN_IF_ERROR(ReadSize(size, &sizes));
      }
    }
    if (static_cast<std::size_t>(count) > kMostLayers - layers.size()) {
      return InvalidInput("more than {} layers", kMostLayers);
    }
    layers.insert(layers.end(), static_cast<std::size_t>(count), sizes);
  }
  return layers;
}

std::string SayLayerSizes(const Model& model) {
  std::string text;
  for (std::size_t from = 0; from < model.size_of.size();) {
    std::size_t to = from;
    while (to < model.size_of.size() && model.size_of[to] == model.size_of[from]) ++to;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", to - from);
    if (model.size_of[from] > 0) {
      LayerSizes sizes = model.sizes[model.size_of[from] - 1u];
      char joint = '*';
      for (const Size& size : kSizes) {
        if (size.of(sizes) == 0) continue;
        text += fmt::format("{}{}={}", joint, size.name, size.of(sizes));
        joint = '+';
      }
    }
    from = to;
  }
  return text;
}

}  // namespace orrery::workload
