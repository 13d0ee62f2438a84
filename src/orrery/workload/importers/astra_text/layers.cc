#include "orrery/workload/importers/astra_text/layers.h"

#include <algorithm>
#include <charconv>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::size_t kMostLayers = 10'000'000;
constexpr std::int64_t kMost = std::int64_t{1} << 50;

std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t\r", at)) != line.npos) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool Number(const std::string& word, std::int64_t* out) {
  const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), *out);
  return error == std::errc() && at == word.data() + word.size();
}

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  // The next line that is not blank; false at the end.
  bool Next(std::string_view* line) {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      *line = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (line->find_first_not_of(" \t\r") != line->npos) return true;
    }
    return false;
  }
  std::size_t number() const { return number_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0, number_ = 0;
};

Status ReadLayer(const std::vector<std::string>& words, TextLayer* layer) {
  if (words.size() != 12) {
    return InvalidInput(
        "{} columns, and a layer has 12: name, a number, then time, communication "
        "and bytes of forward, input gradient and weight gradient, and the update",
        words.size());
  }
  layer->name = words[0];
  std::int64_t* const numbers[] = {nullptr,
                                   nullptr,
                                   &layer->forward.time,
                                   nullptr,
                                   &layer->forward.bytes,
                                   &layer->input_gradient.time,
                                   nullptr,
                                   &layer->input_gradient.bytes,
                                   &layer->weight_gradient.time,
                                   nullptr,
                                   &layer->weight_gradient.bytes,
                                   &layer->update};
  layer->forward.comm = words[3];
  layer->input_gradient.comm = words[6];
  layer->weight_gradient.comm = words[9];
  for (std::size_t c = 2; c < words.size(); ++c) {
    if (numbers[c] == nullptr) continue;
    if (!Number(words[c], numbers[c]) || *numbers[c] < 0 || *numbers[c] > kMost) {
      return InvalidInput("column {}: '{}' is no whole number from 0 to 2^50", c + 1,
                          Printable(words[c], 40));
    }
  }
  return {};
}

}  // namespace

LayerTextKind SniffLayerText(std::string_view start) {
  Lines lines(start);
  std::string_view first, second;
  if (!lines.Next(&first) || !lines.Next(&second)) return LayerTextKind::kNone;
  const std::vector<std::string> words = Words(first), count = Words(second);
  std::int64_t layers = 0;
  if (words.empty() || count.size() != 1 || !Number(count[0], &layers)) return LayerTextKind::kNone;
  const bool simai = words[0].starts_with("HYBRID_TRANSFORMER") ||
                     first.find("model_parallel_NPU_group") != first.npos;
  if (simai) return LayerTextKind::kSimai;
  constexpr std::string_view kPolicies[] = {"MICRO",
                                            "DATA",
                                            "MODEL",
                                            "HYBRID_DATA_MODEL",
                                            "HYBRID_MODEL_DATA",
                                            "HYBRID_DLRM",
                                            "HYBRID_DLRM_ENHANCED"};
  return std::ranges::find(kPolicies, words[0]) != std::end(kPolicies) ? LayerTextKind::kAstra
                                                                       : LayerTextKind::kNone;
}

Result<LayerText> ParseLayerText(std::string_view text, const std::string& name) {
  const auto where = [&name](std::size_t line) {
    return Printable(name) + ":" + std::to_string(line);
  };
  Lines lines(text);
  std::string_view line;
  LayerText out;
  if (!lines.Next(&line)) return InvalidInput("{}: is empty", Printable(name));
  out.header = Words(line);
  std::int64_t count = 0;
  if (!lines.Next(&line) || Words(line).size() != 1 || !Number(Words(line)[0], &count) ||
      count < 1 || count > static_cast<std::int64_t>(kMostLayers)) {
    return InvalidInput("{}: the number of layers is expected, from 1", where(2));
  }
  while (lines.Next(&line)) {
    out.layers.emplace_back();
    ORRERY_RETURN_IF_ERROR(ReadLayer(Words(line), &out.layers.back()).In(where(lines.number())));
  }
  if (out.layers.size() != static_cast<std::size_t>(count)) {
    return InvalidInput("{}: {} layers, and line 2 says {}", where(lines.number()),
                        out.layers.size(), count);
  }
  return out;
}

}  // namespace orrery::workload
