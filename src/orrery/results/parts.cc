#include "orrery/results/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace orrery::results {

PartText TextOf(std::size_t part) {
  using engine::Part;
  switch (static_cast<Part>(part)) {
    case Part::kCompute:
      return {"compute", "kernels of forward and backward"};
    case Part::kOptimizer:
      return {"optim.", "kernels of the optimizer step"};
    case Part::kInterference:
      return {"interf.", "kernels slowed by communication beside them"};
    case Part::kHost:
      return {"host", "GPU idle because the host had not issued work yet"};
    case Part::kNoise:
      return {"noise", "waiting for the slowest of equal ranks: no two are equally fast"};
    case Part::kWaiting:
      return {"waiting", "for partners of a communication that arrive later"};
    case Part::kBubble:
      return {"bubble", "no micro-batch to work on: pipeline filling or draining"};
    default:
      break;
  }
  using graph::GroupSlot;
  switch (static_cast<GroupSlot>(part - static_cast<std::size_t>(Part::kExposed))) {
    case GroupSlot::kTp:
      return {"TP", "tensor- and sequence-parallel communication, not overlapped"};
    case GroupSlot::kDp:
      return {"DP", "data-parallel communication, not overlapped"};
    case GroupSlot::kPp:
      return {"PP", "activations between pipeline stages, not overlapped"};
    case GroupSlot::kCp:
      return {"CP", "context-parallel communication, not overlapped"};
    case GroupSlot::kEp:
      return {"EP", "expert-parallel communication, not overlapped"};
    case GroupSlot::kEmbedding:
      return {"embed.", "tied embeddings' gradient between first and last stage"};
    case GroupSlot::kModel:
      return {"model", "gradient norm over the model's ranks"};
    case GroupSlot::kExpertTp:
      return {"ETP", "tensor-parallel communication inside experts, not overlapped"};
    case GroupSlot::kExpertDp:
      return {"EDP", "data-parallel communication of experts, not overlapped"};
    case GroupSlot::kShard:
      return {"shard", "data-parallel communication inside a shard group, not overlapped"};
    case GroupSlot::kOffload:
      return {"offload", "copies between device and host, not overlapped"};
    case GroupSlot::kReplica:
      return {"replica", "data-parallel communication between shard groups, not overlapped"};
    case GroupSlot::kCount:
      break;
  }
  return {"", ""};
}

std::string Percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

double Share(SimTime part, SimTime total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

namespace {

// What holds a step up while this part of it passes.
std::string ResourceOf(std::size_t part) {
  using engine::Part;
  switch (static_cast<Part>(part)) {
    case Part::kCompute:
    case Part::kOptimizer:
    case Part::kInterference:
      return "the GPUs' kernels";
    case Part::kHost:
      return "the hosts, which issue work too slowly";
    case Part::kNoise:
    case Part::kWaiting:
      return "waiting for ranks that are slower or have more work";
    case Part::kBubble:
      return "the pipeline bubble";
    default:
      break;
  }
  std::string_view what = TextOf(part).meaning;
  what = what.substr(0, what.find(", not overlapped"));
  return fmt::format("{} not overlapped with compute", what);
}

}  // namespace

std::string BoundBy(const JobResult& job) {
  std::vector<std::pair<SimTime, std::string>> kinds;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    const std::string resource = ResourceOf(i);
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.second == resource; });
    if (known == kinds.end()) {
      kinds.emplace_back(job.overall.parts[i], resource);
    } else {
      known->first += job.overall.parts[i];
    }
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto text = [&](const std::pair<SimTime, std::string>& kind) {
    return fmt::format("{}, {}", kind.second, Percent(Share(kind.first, job.overall.total)));
  };
  constexpr double kWorthSaying = 0.05;
  std::string bound = text(kinds[0]);
  if (Share(kinds[1].first, job.overall.total) >= kWorthSaying) {
    bound += "; then " + text(kinds[1]);
  }
  return bound;
}

}  // namespace orrery::results
