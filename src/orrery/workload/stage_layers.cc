#include "orrery/workload/stage_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>

#include "orrery/workload/plan.h"
#include "orrery/workload/plan_features.h"

namespace orrery::workload {
namespace {

using Layers = std::vector<int>;

Layers Alike(std::int64_t chunks, std::int64_t each) {
  return Layers(static_cast<std::size_t>(chunks), static_cast<int>(each));
}

// One more each for `more` chunks from `from` on.
Layers WithMore(std::int64_t chunks, std::int64_t each, std::int64_t from, std::int64_t more) {
  Layers layers = Alike(chunks, each);
  for (std::int64_t i = from; i < std::min(from + more, chunks); ++i) {
    ++layers[static_cast<std::size_t>(i)];
  }
  return layers;
}

Layers Counted(std::int64_t layers, std::int64_t chunks) {
  const std::int64_t each = (layers + 2) / chunks;
  if (each < 2) return {};
  Layers cut = WithMore(chunks, each, 0, (layers + 2) % chunks);
  --cut.front();
  --cut.back();
  return cut;
}

Layers Filled(std::int64_t layers, std::int64_t chunks) {
  const std::int64_t most = (layers + chunks - 1) / chunks;
  Layers cut;
  for (std::int64_t i = 0; i < chunks; ++i) {
    cut.push_back(static_cast<int>(std::clamp<std::int64_t>(layers - i * most, 0, most)));
  }
  return cut;
}

Layers Short(std::int64_t layers, std::int64_t chunks) {
  const std::int64_t most = (layers + chunks - 1) / chunks;
  Layers cut = Alike(chunks, most);
  std::int64_t missing = chunks * most - layers;
  if (missing == 2) {
    --cut.front();
    --missing;
  }
  for (auto chunk = cut.rbegin(); chunk != cut.rend() && missing > 0; ++chunk) {
    const std::int64_t less = std::min(missing, std::max<std::int64_t>(most - 1, 1));
    *chunk -= static_cast<int>(less);
    missing -= less;
  }
  return cut;
}

Layers ThinEnds(std::int64_t layers, std::int64_t chunks) {
  for (std::int64_t end = layers / chunks - 1; chunks > 2 && end > 0; --end) {
    if ((layers - 2 * end) % (chunks - 2) != 0) continue;
    Layers cut = Alike(chunks, (layers - 2 * end) / (chunks - 2));
    cut.front() = cut.back() = static_cast<int>(end);
    return cut;
  }
  return {};
}

Layers ByRule(StageCut cut, std::int64_t layers, std::int64_t chunks) {
  const std::int64_t each = layers / chunks, more = layers % chunks;
  switch (cut) {
    case StageCut::kAuto:
      return {};
    case StageCut::kSpread:
      return WithMore(chunks, each, 0, more);
    case StageCut::kFilled:
      return Filled(layers, chunks);
    case StageCut::kCounted:
      return Counted(layers, chunks);
    case StageCut::kInner:
      return more <= chunks - 2 ? WithMore(chunks, each, 1, more) : Layers();
    case StageCut::kShort:
      return Short(layers, chunks);
    case StageCut::kThinEnds:
      return ThinEnds(layers, chunks);
  }
  return {};
}

// Up to two legal lists near an uneven division: the spare layers in the middle, then in front.
std::string NearestLists(std::int64_t layers, std::int64_t chunks) {
  constexpr std::int64_t kMostShown = 16;
  if (chunks > kMostShown) return fmt::format("{} entries that sum to {}", chunks, layers);
  const std::int64_t base = layers / chunks;
  const std::int64_t spare = layers % chunks;
  const auto list = [&](std::int64_t from) {
    return fmt::format("[{}]", fmt::join(WithMore(chunks, base, from, spare), ", "));
  };
  if (spare == 0) return list(0);
  const std::string inner = list((chunks - spare) / 2), first = list(0);
  return inner == first ? first : inner + " or " + first;
}

Result<std::vector<int>> GivenLayers(const Model& model, const Plan& plan) {
  const std::size_t chunks =
      static_cast<std::size_t>(plan.parallel.pp) * static_cast<std::size_t>(plan.parallel.vpp);
  const std::vector<int>& given = plan.parallel.layers_per_stage;
  if (given.size() != chunks) {
    return InvalidInput(
        "parallel.layers_per_stage: {} entries for {} (pp {} · vpp {}); give one entry per {}",
        given.size(), chunks, plan.parallel.pp, plan.parallel.vpp,
        plan.parallel.vpp > 1 ? "chunk, in chunk order" : "stage");
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const bool end = chunks > 1 && (i == 0 || i + 1 == chunks);  // embedding or loss alone
    if (given[i] < (end ? 0 : 1)) {
      return InvalidInput(
          "parallel.layers_per_stage: entry {} is {}; every {} between the first and the last "
          "needs a layer",
          i + 1, given[i], plan.parallel.vpp > 1 ? "chunk" : "stage");
    }
    sum += given[i];
  }
  if (sum != model.layers) {
    return InvalidInput("parallel.layers_per_stage: [{}] is {} layers, but {} has {}; near it: {}",
                        fmt::join(given, ", "), sum, model.name, model.layers,
                        NearestLists(model.layers, static_cast<std::int64_t>(chunks)));
  }
  return given;
}

}  // namespace

std::vector<int> CutLayers(StageCut cut, std::int64_t layers, std::int64_t chunks) {
  if (chunks < 2 || chunks > layers) return {};
  Layers by_rule = ByRule(cut, layers, chunks);
  const bool even = std::ranges::adjacent_find(by_rule, std::not_equal_to{}) == by_rule.end();
  return even ? Layers() : by_rule;
}

std::string CutProblem(StageCut cut, const Model& model, std::int64_t chunks) {
  const std::int64_t layers = model.layers;
  const bool by_auto = layers % chunks == 0 || (layers + 2) % chunks == 0;
  if (cut == StageCut::kAuto || by_auto || chunks > layers ||
      !CutLayers(cut, layers, chunks).empty())
    return "";
  const std::string_view name = kStageCuts[static_cast<std::size_t>(cut)].first;
  std::string why;
  if (cut == StageCut::kCounted) {
    why = fmt::format(": with embedding and loss they are {}, fewer than 2 a chunk", layers + 2);
  }
  return fmt::format(
      "{} cannot share out the {} layers of {} over {} chunks{}; give a list, such "
      "as {}, or use {} chunks",
      name, layers, model.name, chunks, why, NearestLists(layers, chunks),
      NearestDivisors(layers, chunks));
}

Result<std::vector<int>> LayersPerChunk(const Model& model, const Plan& plan) {
  if (plan.dual()) {  // the model twice
    Plan once = plan;
    once.parallel.vpp = 1;
    once.parallel.schedule = Schedule::k1f1b;
    ORRERY_ASSIGN_OR_RETURN(std::vector<int> layers, LayersPerChunk(model, once));
    layers.insert(layers.end(), layers.begin(), layers.begin() + plan.parallel.pp);
    return layers;
  }
  if (!plan.parallel.layers_per_stage.empty()) return GivenLayers(model, plan);
  const std::int64_t chunks = std::int64_t{plan.parallel.pp} * plan.parallel.vpp;
  if (chunks > model.layers + 2) {
    return InvalidInput(
        "parallel.pp: pp {} · vpp {} = {} chunks for the {} layers, embedding and loss of {}; use "
        "pp · vpp {} or less",
        plan.parallel.pp, plan.parallel.vpp, chunks, model.layers, model.name, model.layers + 2);
  }
  if (model.layers % chunks == 0) {
    return Alike(chunks, model.layers / chunks);
  }
  // Embedding and loss count as one layer each.
  if (chunks > 1 && (model.layers + 2) % chunks == 0) {
    Layers layers = Alike(chunks, (model.layers + 2) / chunks);
    --layers.front();
    --layers.back();
    return layers;
  }
  return InvalidInput(
      "parallel.layers_per_stage: auto cannot divide the {} layers of {} (or {} with embedding and "
      "loss) over {} {}; give a list, such as {}, or use {} {}",
      model.layers, model.name, model.layers + 2, chunks,
      plan.parallel.vpp > 1 ? "chunks" : "stages", NearestLists(model.layers, chunks),
      NearestDivisors(model.layers, chunks), plan.parallel.vpp > 1 ? "chunks" : "stages");
}

}  // namespace orrery::workload
