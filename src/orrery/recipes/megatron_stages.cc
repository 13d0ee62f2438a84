// How Megatron lays layers on pipeline stages: arguments.py (validate_args),
// core/transformer/transformer_block.py (get_num_layers_to_build) and
// core/transformer/pipeline_parallel_layer_layout.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using Layers = std::vector<std::int64_t>;

void SetLayers(const Layers& chunks, Reading* r) {
  const bool even = std::ranges::all_of(chunks, [&](std::int64_t n) { return n == chunks[0]; });
  if (even) return;
  r->draft().Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(chunks, ", ")));
}

// One stage's layers cut into vpp chunks, put into chunk order.
void SetStages(const Layers& stages, std::int64_t vpp, std::string_view argument, Reading* r) {
  Layers chunks;
  for (std::int64_t chunk = 0; chunk < vpp; ++chunk) {
    for (const std::int64_t layers : stages) {
      if (layers % vpp != 0 || layers <= 0) {
        return r->Refuse(
            argument, fmt::format("{} layers of a stage are not cut into {} chunks", layers, vpp));
      }
      chunks.push_back(layers / vpp);
    }
  }
  SetLayers(chunks, r);
}

// "Et*3|(tt|)*29,m|L": one entry a chunk, what it holds as letters. nullopt: it cannot be read.
std::optional<std::vector<std::string>> ParseLayout(std::string_view text) {
  // Repetitions first: X*N and (…)*N, inside out.
  std::string flat;
  std::vector<std::size_t> open;
  std::size_t last = 0;  // where the last item begins
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == ',' || c == ' ' || c == '\'' || c == '"') continue;
    if (c == '(') {
      open.push_back(flat.size());
    } else if (c == ')') {
      if (open.empty()) return std::nullopt;
      last = open.back();
      open.pop_back();
    } else if (c == '*') {
      std::int64_t times = 0;
      const char* from = text.data() + at + 1;
      const auto [end, error] = std::from_chars(from, text.data() + text.size(), times);
      if (error != std::errc() || times < 1 || times > 10000) return std::nullopt;
      const std::string item = flat.substr(last);
      for (std::int64_t i = 1; i < times; ++i) flat += item;
      if (flat.size() > 100'000) return std::nullopt;
      at += static_cast<std::size_t>(end - from);
    } else {
      last = flat.size();
      flat += c;
    }
  }
  if (!open.empty() || flat.find_first_not_of("EtdmL|") != std::string::npos) return std::nullopt;
  std::vector<std::string> chunks(1);
  for (const char c : flat) {
    if (c == '|') {
      chunks.emplace_back();
    } else {
      chunks.back() += c;
    }
  }
  return chunks;
}

void ReadLayout(const std::string& text, std::int64_t pp, Reading* r) {
  constexpr std::string_view kArgument = "--pipeline-model-parallel-layout";
  const auto chunks = ParseLayout(text);
  if (!chunks) return r->Refuse(kArgument, "write it as 'Et*3|(tt|)*29,m|L'");
  const auto count = static_cast<std::int64_t>(chunks->size());
  if (count % pp != 0) {
    return r->Refuse(kArgument, fmt::format("it names {} chunks for {} stages", count, pp));
  }
  Layers layers;
  std::int64_t further = 0;
  for (const std::string& chunk : *chunks) {
    layers.push_back(std::ranges::count(chunk, 't') + std::ranges::count(chunk, 'd'));
    further += std::ranges::count(chunk, 'm');
    if (Contains(chunk, "m") && &chunk != &chunks->back()) {
      return r->Refuse(kArgument,
                       fmt::format("modules that predict further tokens in a chunk before the "
                                   "loss's ('{}') are not modelled; write them beside the L",
                                   chunk));
    }
  }
  if (further > 0 && !r->draft().Has("model.mtp_layers"))
    r->draft().Set("model.mtp_layers", further);
  if (count > pp) r->draft().Set("parallel.vpp", count / pp);
  SetLayers(layers, r);
}

std::int64_t ReadVpp(std::int64_t pp, std::int64_t layers, Reading* r) {
  constexpr std::string_view kLayers = "--num-layers-per-virtual-pipeline-stage";
  if (const auto stages = r->Whole("--num-virtual-stages-per-pipeline-rank");
      stages && *stages > 1) {
    return *stages;
  }
  const auto each = r->Whole(kLayers);
  if (!each || *each <= 0 || pp <= 1) return 1;
  if (layers <= 0 || layers % (pp * *each) != 0) {
    r->Refuse(kLayers, fmt::format("{} layers on {} stages are not cut into chunks of {}", layers,
                                   pp, *each));
    return 1;
  }
  return layers / (pp * *each);
}

}  // namespace

void ReadMegatronStages(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t pp = draft.Whole("parallel.pp", 1);
  const std::int64_t layers = draft.Whole("model.layers", 0);
  const std::string layout = r->Text("--pipeline-model-parallel-layout");
  const bool embedding = r->On("--account-for-embedding-in-pipeline-split");
  const bool loss = r->On("--account-for-loss-in-pipeline-split");
  std::optional<std::int64_t> first = r->Whole("--decoder-first-pipeline-num-layers");
  std::optional<std::int64_t> last = r->Whole("--decoder-last-pipeline-num-layers");
  if (!first) first = r->Whole("--num-layers-in-first-pipeline-stage");
  if (!last) last = r->Whole("--num-layers-in-last-pipeline-stage");
  const bool overlapped = !r->On("--no-overlap-p2p-communication");
  if (!layout.empty()) {
    ReadLayout(layout, pp, r);
  } else if (pp > 1 && layers > 0) {
    // Stages beside the first and last share the rest; embedding and loss may count as layers.
    const std::int64_t counted = layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
    const std::int64_t others = pp - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = counted - first.value_or(0) - last.value_or(0);
    const std::int64_t vpp =
        ReadVpp(pp, first || last ? rest * pp / std::max<std::int64_t>(others, 1) : counted, r);
    if (vpp > 1) draft.Set("parallel.vpp", vpp);
    if (first || last || embedding || loss) {
      const std::string_view argument = first       ? "--decoder-first-pipeline-num-layers"
                                        : last      ? "--decoder-last-pipeline-num-layers"
                                        : embedding ? "--account-for-embedding-in-pipeline-split"
                                                    : "--account-for-loss-in-pipeline-split";
      if (others <= 0 || rest % others != 0) {
        return r->Refuse(argument,
                         fmt::format("{} layers are not shared by {} stages", rest, others));
      }
      if ((embedding || loss) && vpp > 1) {  // the first and the last chunk alone are smaller
        Layers chunks(static_cast<std::size_t>(pp * vpp), counted / (pp * vpp));
        chunks.front() -= embedding ? 1 : 0;
        chunks.back() -= loss ? 1 : 0;
        SetLayers(chunks, r);
      } else {
        Layers stages(static_cast<std::size_t>(pp), rest / others);
        if (first) stages.front() = *first;
        if (last) stages.back() = *last;
        stages.front() -= embedding ? 1 : 0;
        stages.back() -= loss ? 1 : 0;
        SetStages(stages, vpp, argument, r);
      }
    }
  }
  if (draft.Whole("parallel.vpp", 1) > 1 && !overlapped) {
    draft.Set("framework_options.overlap_p2p", false);
  }
}

std::optional<std::vector<std::int64_t>> ParsePythonList(std::string_view text) {
  std::vector<std::int64_t> all;
  std::size_t at = 0;
  const auto blank = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '(' || text[at] == ')')) ++at;
  };
  const auto number = [&](std::int64_t* value) {
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), *value);
    at = static_cast<std::size_t>(end - text.data());
    return error == std::errc();
  };
  for (blank(); at < text.size();) {
    if (text[at] != '[') return std::nullopt;
    ++at;
    std::vector<std::int64_t> part;
    for (blank(); at < text.size() && text[at] != ']'; blank()) {
      std::int64_t value = 0;
      if (!number(&value)) return std::nullopt;
      part.push_back(value);
      blank();
      if (at < text.size() && text[at] == ',') ++at;
    }
    if (at >= text.size()) return std::nullopt;
    ++at;
    blank();
    std::int64_t times = 1;
    if (at < text.size() && text[at] == '*') {
      ++at;
      blank();
      if (!number(&times) || times < 0 || times > 10000) return std::nullopt;
      blank();
    }
    for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), part.begin(), part.end());
    if (all.size() > 100'000) return std::nullopt;
    if (at < text.size() && text[at] != '+') return std::nullopt;
    ++at;
    blank();
  }
  return all;
}

}  // namespace orrery::recipes
