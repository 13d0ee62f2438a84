// Text workloads of ASTRA-sim 1.0, which SimAI has kept: a line of keys, the number of layers, then
// a line a layer of twelve columns (name, a number that nobody reads, then time, kind of
// communication and bytes of the forward pass, of input gradients and of weight gradients, and the
// update's time).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::workload {

struct TextPhase {
  std::int64_t time = 0;  // in the workload's unit
  std::string comm;       // "NONE", "ALLREDUCE", …
  std::int64_t bytes = 0;
};
struct TextLayer {
  std::string name;
  TextPhase forward, input_gradient, weight_gradient;
  std::int64_t update = 0;
};
struct LayerText {
  std::vector<std::string> header;  // words of the first line
  std::vector<TextLayer> layers;
};

// Errors name line and column. Extra columns of a layer are an error.
Result<LayerText> ParseLayerText(std::string_view text, const std::string& name);

// Whether a file begins as one of them: a policy, and a number in the second line.
enum class LayerTextKind : std::uint8_t { kNone, kAstra, kSimai };
LayerTextKind SniffLayerText(std::string_view start);

}  // namespace orrery::workload
