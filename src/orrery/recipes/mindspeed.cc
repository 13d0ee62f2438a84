// MindSpeed-LLM: Megatron-LM on Ascend, whose scripts are Megatron's arguments and its own. They
// are read for the cluster that is given, as Megatron would run them there. What one argument says
// stands in data/recipes/mindspeed.csv. Source of defaults and meaning: Ascend/MindSpeed-LLM,
// mindspeed_llm/features_manager and mindspeed_llm/training/arguments.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

// "61,62,63"; nullopt: it is no list of whole numbers.
std::optional<std::vector<std::int64_t>> Numbers(std::string_view text) {
  std::vector<std::int64_t> numbers;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size()) return std::nullopt;
    numbers.push_back(value);
  }
  return numbers;
}

// Before arguments are translated: what is one argument here and another of Megatron's.
void MindSpeedDefaults(const Script&, Launch*, Reading* r) {
  const std::string algorithm = r->Text("--context-parallel-algo");
  const std::string where = r->Where("--context-parallel-algo");
  if (!algorithm.empty()) {
    r->AddAs("--cp-comm-type", "--context-parallel-algo",
             algorithm == "ulysses_cp_algo"       ? "a2a"
             : algorithm == "kvallgather_cp_algo" ? "all_gather"
             : algorithm == "hybrid_cp_algo"      ? "a2a+p2p"
                                                  : "p2p",
             where);
  }
  if (r->Has("peft.dim")) {
    r->AddAs("peft._target_", "--lora-r", "lora", r->Where("peft.dim"));
  }
}

// Dense layers before those with experts, and experts that every token takes.
void ReadMindSpeedExperts(Reading* r) {
  Draft& draft = r->draft();
  const auto dense = r->Whole("--first-k-dense-replace"), shared = r->Whole("--n-shared-experts");
  const bool spread = r->On("--moe-tp-extend-ep");
  const std::int64_t expert = draft.Whole("model.expert_ffn_hidden", 0);
  const std::int64_t tp = draft.Whole("parallel.tp", 1), ep = draft.Whole("parallel.ep", 1);
  if (!draft.Has("model.experts")) return;
  if (dense && *dense > 0) draft.Set("model.first_dense_layers", *dense);
  if (shared && *shared > 0 && expert > 0 && !draft.Has("model.shared_ffn_hidden")) {
    draft.Set("model.shared_ffn_hidden", Product({*shared, expert}));
  }
  if (spread && tp > 1) {  // the tensor-parallel ranks hold whole experts
    draft.Set("parallel.ep", Product({ep, tp}));
    draft.Set("parallel.etp", std::int64_t{1});
  }
}

// Layers that do nothing fill up stages: they are counted in --num-layers.
void ReadNoopLayers(Reading* r) {
  constexpr std::string_view kArgument = "--noop-layers";
  Draft& draft = r->draft();
  const std::string text = r->Text(kArgument);
  if (text.empty()) return;
  const auto idle = Numbers(text);
  const std::int64_t layers = draft.Whole("model.layers", 0);
  const std::int64_t chunks =
      Product({draft.Whole("parallel.pp", 1), draft.Whole("parallel.vpp", 1)});
  const bool within = idle && std::ranges::all_of(*idle, [&](std::int64_t layer) {
                        return layer >= 0 && layer < layers;
                      });
  if (!within || chunks < 1 || layers % chunks != 0 || draft.Has("parallel.layers_per_stage")) {
    return r->Refuse(kArgument, fmt::format("'{}' of {} layers on {} chunks are not read",
                                            Printable(text, 60), layers, chunks));
  }
  std::vector<std::int64_t> each(static_cast<std::size_t>(chunks), layers / chunks);
  for (const std::int64_t layer : *idle) --each[static_cast<std::size_t>(layer * chunks / layers)];
  if (std::ranges::min(each) < 1) {
    return r->Refuse(kArgument, "a chunk without layers is not modelled");
  }
  draft.Set("model.layers", layers - static_cast<std::int64_t>(idle->size()));
  if (chunks > 1) {
    draft.Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(each, ", ")));
  }
}

void ReadLayerList(Reading* r) {
  constexpr std::string_view kArgument = "--num-layer-list";
  const std::string text = r->Text(kArgument);
  if (text.empty()) return;
  const auto each = Numbers(text);
  if (!each) {
    return r->Refuse(kArgument, "write it as '4,4,4,4'");
  }
  r->draft().Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(*each, ", ")));
}

void AfterMindSpeed(Reading* r) {
  Draft& draft = r->draft();
  const bool fused = r->On("--use-flash-attn");
  const bool shares = r->On("--reuse-fp32-param");
  const bool again = r->On("--recompute-activation-function");
  const bool overlaps = r->On("--moe-alltoall-overlap-comm"),
             permutes = r->On("--moe-permutation-async-comm");
  draft.SetText("framework_options.attention", fused ? "flash2" : "unfused");
  ReadMindSpeedExperts(r);
  ReadNoopLayers(r);
  ReadLayerList(r);
  ReadBridgeAdapters(r);
  draft.Assume(
      "MindSpeed's kernels are priced as Megatron's on this cluster's GPUs; an NPU has its own");
  if (shares) {
    draft.Assume(
        "--reuse-fp32-param: 16-bit parameters are counted beside the fp32 ones whose memory they "
        "share");
  }
  if (again) {
    draft.Assume(
        "--recompute-activation-function: what it is computed from again is counted as kept");
  }
  if (overlaps || permutes) {
    draft.Assume("experts' exchanges are not hidden behind other work of their layer");
  }
}

}  // namespace

const Table& MindSpeedTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_mindspeed.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsMindSpeed(std::string_view text, const std::string& path) {
  return !IsYaml(path) && IsMegatron(text, path) &&
         (Contains(text, "--handler-name") || Contains(text, "NPUS_PER_NODE") ||
          Contains(text, "PYTORCH_NPU_ALLOC_CONF") || Contains(text, "--use-fused-rmsnorm"));
}

Result<Imported> ReadMindSpeed(const std::vector<File>& files, const Options& options) {
  return ReadMegatronScript(files, options,
                            {.name = "mindspeed",
                             .tables = {&MindSpeedTable(), &MegatronTable(), &NemoTable()},
                             .defaults = MindSpeedDefaults,
                             .after = AfterMindSpeed});
}

}  // namespace orrery::recipes
