#include "orrery/search/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/constants/spreads.h"
#include "orrery/job/simulate.h"
#include "orrery/results/breakdown_json.h"
#include "orrery/results/document.h"
#include "orrery/results/json.h"
#include "orrery/results/result.h"
#include "orrery/search/explain/fields.h"

namespace orrery::search {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostOps = 6;        // kernels or collectives of one field
constexpr std::size_t kMostConstants = 8;  // of one field, by their effect
constexpr int kMostDepth = 8;
constexpr double kLeastEffect = 1e-6;  // of a field, by a constant's spread

const Json* At(const Json& root, std::string_view path) {
  const Json* node = &root;
  while (node != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (node->is_object()) {
      node = node->contains(key) ? &node->at(key) : nullptr;
    } else if (node->is_array()) {
      std::size_t i = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), i);
      const bool whole = error == std::errc() && end == key.data() + key.size();
      node = whole && i < node->size() ? &(*node)[i] : nullptr;
    } else {
      node = nullptr;
    }
  }
  return node;
}

void Walk(const Json& node, const std::string& path, std::vector<std::string>* fields) {
  const auto below = [&](const std::string& key) {
    return path.empty() ? key : fmt::format("{}.{}", path, key);
  };
  if (node.is_object()) {
    for (const auto& [key, value] : node.items()) Walk(value, below(key), fields);
  } else if (node.is_array()) {
    for (std::size_t i = 0; i < node.size(); ++i)
      Walk(node[i], below(fmt::format("{}", i)), fields);
  } else if (node.is_number()) {
    fields->push_back(path);
  }
}

std::string Shown(const std::string& field, const Json& value) {
  if (!value.is_number()) {
    return value.is_string() ? value.get<std::string>()
                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  if (field.ends_with("_bytes") || field.ends_with(".bytes")) {
    return fmt::format("{} ({})", value.get<std::int64_t>(), HumanBytes(value.get<std::int64_t>()));
  }
  if (field.ends_with("_ps")) {
    return fmt::format("{} ps ({})", value.get<std::int64_t>(),
                       HumanTime(value.get<std::int64_t>()));
  }
  if (field.ends_with("_s")) return fmt::format("{}", value.get<double>());
  return value.dump();
}

std::string ParentOf(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

}  // namespace

struct Explainer::State {
  Json result;
  std::string config, measured_database;
  job::Caches caches;
  std::vector<job::Shares> shares;         // by program
  std::vector<std::optional<Json>> moved;  // by constant; results with it moved by its spread

  Result<job::Job> Read(const constants::Set& set, const std::vector<std::string>& more) const {
    job::ReadOptions read;
    read.constants = set;
    read.set = more;
    return job::ReadJobText(config, "the result's config", "", read);
  }
  Result<Json> Run(const constants::Set& set, const std::vector<std::string>& more) {
    ORRERY_ASSIGN_OR_RETURN(const job::Job job, Read(set, more));
    job::SimulateOptions options;
    options.measured_database = measured_database;
    options.check = false;
    ORRERY_ASSIGN_OR_RETURN(const results::RunResult run, job::Simulate(job, options, &caches));
    return Json::parse(results::ToJson(run), nullptr, false);
  }

  // The result with each constant moved by its spread, once for all fields.
  Status MoveConstants() {
    if (!moved.empty()) return {};
    const auto definitions = constants::Definitions();
    for (std::size_t i = 0; i < definitions.size(); ++i) {
      constants::Set set = constants::Set::Fitted();
      const constants::Definition& d = definitions[i];
      const double up = d.fitted + d.fitted_spread;
      set.set(i, up <= d.high ? up : d.fitted - d.fitted_spread);
      Result<Json> run = Run(set, {});
      moved.push_back(run.ok() ? std::optional<Json>(*std::move(run)) : std::nullopt);
    }
    return {};
  }

  // `tokens` of the table's made_of that are ends.
  Status AddEnds(const std::string& field, const std::string& token, std::vector<End>* ends);
  void AddKernels(const std::string& field, std::vector<End>* ends) const;
  void AddCollectives(const std::string& field, std::vector<End>* ends) const;
  Status AddConstants(const std::string& field, std::vector<End>* ends);
  void AddInput(const std::string& path, std::vector<End>* ends) const;
  const job::Shares* SharesFor(const std::string& field) const;
  Result<Explanation> Explain(const std::string& field, int depth, std::set<std::string>* seen);
  std::vector<Purchase> Purchases(const cluster::Spec& spec);
  static std::vector<Narrowing> Narrowings(const constants::StepShares& step);
};

// Of the stage that the field is of, else of the stage with most kernel time.
const job::Shares* Explainer::State::SharesFor(const std::string& field) const {
  constexpr std::string_view kStages = "breakdown.stages.";
  const job::Shares* most = nullptr;
  SimTime most_time = -1;
  for (const job::Shares& one : shares) {
    SimTime time = 0;
    for (const job::KernelShare& kernel : one.kernels) time += kernel.time;
    if (time > most_time) most = &one, most_time = time;
  }
  if (!field.starts_with(kStages)) return most;
  const Json* stage = At(
      result,
      fmt::format("{}{}.stage", kStages,
                  field.substr(kStages.size(), field.find('.', kStages.size()) - kStages.size())));
  for (const job::Shares& one : shares) {
    if (stage != nullptr && *stage == one.stage) return &one;
  }
  return most;
}

void Explainer::State::AddKernels(const std::string& field, std::vector<End>* ends) const {
  const job::Shares* from = SharesFor(field);
  if (from == nullptr) return;
  const bool optimizer = field.find(".optimizer_") != std::string::npos;
  std::size_t added = 0;
  for (const job::KernelShare& k : from->kernels) {
    const bool own = k.module.find("optimizer") != std::string::npos;
    if (own != optimizer && field.starts_with("breakdown")) continue;
    if (added++ == kMostOps) break;
    ends->push_back(
        {"kernel", k.module.empty() ? k.name : fmt::format("{} of {}", k.name, k.module),
         fmt::format("{} in {} runs a step on stage {}", HumanTime(k.time), HumanCount(k.runs),
                     from->stage),
         k.provenance == compute::Provenance::kModelled
             ? fmt::format("modelled, spread {:.0f} % (docs/compute.md)", k.spread * 100)
             : fmt::format("{} from the table of measured kernels, spread {:.0f} %",
                           compute::Name(k.provenance), k.spread * 100),
         HumanTime(k.time)});
  }
}

void Explainer::State::AddCollectives(const std::string& field, std::vector<End>* ends) const {
  const job::Shares* from = SharesFor(field);
  if (from == nullptr) return;
  constexpr std::string_view kExposed = "exposed_";
  std::string slot;
  if (const std::size_t at = field.rfind(kExposed); at != std::string::npos) {
    slot = field.substr(at + kExposed.size());
    slot = slot.substr(0, slot.rfind('_'));
  }
  std::size_t added = 0;
  for (const job::CollectiveShare& c : from->collectives) {
    if (!slot.empty() && graph::Name(c.group) != slot) continue;
    if (added++ == kMostOps) break;
    ends->push_back(
        {"collective",
         fmt::format("{} of {} in {}", graph::Name(c.collective), HumanBytes(c.bytes),
                     graph::Name(c.group)),
         fmt::format("{} each, {} a step, {} ranks in {} NVLink domain{}{}", HumanTime(c.each),
                     HumanCount(c.runs), c.ranks, c.domains, c.domains == 1 ? "" : "s",
                     c.blocking ? ", compute waits for it" : ""),
         c.plan + " (docs/collectives.md)", HumanTime(c.each) + " each"});
  }
}

Status Explainer::State::AddConstants(const std::string& field, std::vector<End>* ends) {
  ORRERY_RETURN_IF_ERROR(MoveConstants());
  const Json* here = At(result, field);
  if (here == nullptr || !here->is_number()) return {};
  const double value = here->get<double>();
  struct Effect {
    std::size_t constant;
    double change;
  };
  std::vector<Effect> effects;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const Json* there = moved[i] ? At(*moved[i], field) : nullptr;
    if (there == nullptr || !there->is_number()) continue;
    const double change = there->get<double>() - value;
    if (std::abs(change) > kLeastEffect * std::abs(value)) effects.push_back({i, change});
  }
  std::stable_sort(effects.begin(), effects.end(), [](const Effect& a, const Effect& b) {
    return std::abs(a.change) > std::abs(b.change);
  });
  for (std::size_t i = 0; i < std::min(effects.size(), kMostConstants); ++i) {
    const constants::Definition& d = constants::Definitions()[effects[i].constant];
    const std::string effect = value != 0
                                   ? fmt::format("{:+.2f} %", effects[i].change / value * 100)
                                   : fmt::format("{:+.3g}", effects[i].change);
    ends->push_back({"constant", std::string(d.name),
                     fmt::format("{} {} ± {}, {}: {} by its spread", d.fitted, d.unit,
                                 d.fitted_spread, d.explains, effect),
                     fmt::format("{} (data/constants/constants.csv)", d.source), effect});
  }
  return {};
}

void Explainer::State::AddInput(const std::string& path, std::vector<End>* ends) const {
  constexpr std::size_t kMostText = 200;
  const Json* node = At(result, fmt::format("config.{}", path));
  ends->push_back(
      {"input", path,
       node != nullptr ? Printable(Shown(path, *node), kMostText) : "left out of the job file",
       "the job file, its presets and what was assumed"});
}

Status Explainer::State::AddEnds(const std::string& field, const std::string& token,
                                 std::vector<End>* ends) {
  constexpr std::string_view kConfig = "config:";
  if (token.starts_with(kConfig)) AddInput(token.substr(kConfig.size()), ends);
  if (token == "kernels") AddKernels(field, ends);
  if (token == "collectives") AddCollectives(field, ends);
  if (token == "constants") return AddConstants(field, ends);
  if (token == "input") {
    AddInput(field.substr(field.find('.') + 1), ends);
  } else if (token == "run") {
    ends->push_back({"run", "this run of the program", "another run may differ", "measured here"});
  } else if (token == "allocator") {
    ends->push_back({"rule", "PyTorch's caching allocator, replayed",
                     "segments, splitting, rounding", "docs/memory.md"});
  } else if (token == "libraries") {
    ends->push_back({"rule", "memory of CUDA, NCCL and libraries",
                     "typical readings of nvidia-smi less torch's own, and NCCL's buffer sizes",
                     "docs/memory.md"});
  } else if (token == "spreads") {
    const constants::Spreads s = constants::FittedSpreads();
    ends->push_back(
        {"constant", "spreads of the interval",
         fmt::format("kernels {:.3g}, host {:.3g}, communication {:.3g}, waiting {:.3g}, "
                     "base {:.3g}",
                     s.kernels, s.host, s.communication, s.waiting, s.base),
         "fitted to the errors of rows left out (data/constants/spreads.csv)"});
  }
  return {};
}

Result<Explanation> Explainer::State::Explain(const std::string& field, int depth,
                                              std::set<std::string>* seen) {
  const Json* value = At(result, field);
  if (value == nullptr || !value->is_number()) {
    return InvalidInput("there is no numeric field '{}'", Printable(field, 80));
  }
  const FieldRow* row = FindField(field);
  if (row == nullptr) {
    return ResourceError("the field {} is not explained in data/explain/fields.csv", field);
  }
  Explanation out{.field = field,
                  .value = Shown(field, *value),
                  .meaning = row->meaning,
                  .number = value->get<double>(),
                  .parts = {},
                  .ends = {}};
  constexpr std::string_view kField = "field:";
  for (const std::string& token : row->made_of) {
    if (!token.starts_with(kField)) {
      ORRERY_RETURN_IF_ERROR(AddEnds(field, token, &out.ends));
      continue;
    }
    std::string part = token.substr(kField.size());
    if (part.front() == '~') part = fmt::format("{}.{}", ParentOf(field), part.substr(1));
    const Json* there = At(result, part);
    const bool nothing = there == nullptr || !there->is_number() || there->get<double>() == 0;
    if (nothing || depth == 0 || !seen->insert(part).second) continue;
    ORRERY_ASSIGN_OR_RETURN(Explanation below, Explain(part, depth - 1, seen));
    out.parts.push_back(std::move(below));
  }
  if (out.parts.empty() && out.ends.empty()) {
    out.ends.push_back({"input", "the job", "has nothing of this kind", "the job file"});
  }
  return out;
}

Explainer::Explainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Explainer::Explainer(Explainer&&) noexcept = default;
Explainer& Explainer::operator=(Explainer&&) noexcept = default;
Explainer::~Explainer() = default;

Result<Explainer> Explainer::Create(std::string_view text, const std::string& name,
                                    const std::string& measured_database) {
  auto state = std::make_unique<State>();
  ORRERY_ASSIGN_OR_RETURN(state->result,
                          results::ReadDocument(text, name, "simulate", results::kResultSchema));
  const Json& json = state->result;
  if (json.contains("jobs") || !json.contains("config") || !json.contains("step_time_ps") ||
      !json.at("step_time_ps").is_number_integer()) {
    return InvalidInput("{}: is no result of one training job, which is what explain takes", name);
  }
  state->config = json.at("config").dump();
  state->measured_database = measured_database;
  Result<job::Job> job = state->Read(constants::Set::Fitted(), {});
  if (!job.ok()) return std::move(job).TakeStatus().In(name);
  job::SimulateOptions options;
  options.measured_database = measured_database;
  ORRERY_ASSIGN_OR_RETURN(job::Simulation simulation,
                          job::Simulation::Prepare(*job, options, &state->caches));
  state->shares = simulation.OpShares();
  ORRERY_ASSIGN_OR_RETURN(const job::Evaluation now, simulation.Evaluate());
  if (const SimTime then = json.at("step_time_ps"); then != now.job.step_time) {
    return InvalidInput(
        "{}: says a step of {}, its job file gives {} now: another version, --calibration or table "
        "of measured kernels made it; simulate the job again",
        name, HumanTime(then), HumanTime(now.job.step_time));
  }
  return Explainer(std::move(state));
}

std::map<std::string, SimTime> Explainer::ModuleTimes() const {
  std::map<std::string, SimTime> times;
  std::int64_t ranks = 0;
  for (const job::Shares& program : state_->shares) {
    ranks += program.ranks;
    for (const job::KernelShare& k : program.kernels) times[k.module] += k.time * program.ranks;
  }
  for (auto& [module, time] : times) time /= std::max<std::int64_t>(ranks, 1);
  return times;
}

void AddModules(std::string_view a, std::string_view b, const std::string& measured_database,
                results::Comparison* c) {
  std::map<std::string, results::Difference> modules;
  for (const bool first : {true, false}) {
    const Result<Explainer> one =
        Explainer::Create(first ? a : b, first ? c->name_a : c->name_b, measured_database);
    if (!one.ok()) {
      c->no_modules = one.status().message();
      return;
    }
    for (const auto& [module, time] : one->ModuleTimes()) {
      results::Difference& d = modules[module];
      d.name = module.empty() ? "(no module)" : module;
      (first ? d.a : d.b) = time;
    }
  }
  for (auto& [module, d] : modules) {
    if (d.change() != 0) c->modules.push_back(std::move(d));
  }
  std::ranges::stable_sort(c->modules, std::ranges::greater(),
                           [](const auto& d) { return std::abs(d.change()); });
}

std::vector<std::string> Explainer::Fields() const {
  std::vector<std::string> fields;
  Walk(state_->result, "", &fields);
  return fields;
}

Result<Explanation> Explainer::Explain(const std::string& field) {
  std::string path = field;
  std::replace(path.begin(), path.end(), '[', '.');
  std::erase(path, ']');
  const std::vector<std::string> fields = Fields();
  if (std::find(fields.begin(), fields.end(), path) == fields.end()) {
    std::vector<std::string> ending;
    for (const std::string& one : fields) {
      if (one.ends_with(fmt::format(".{}", path))) ending.push_back(one);
    }
    std::vector<std::string> below;  // of a group of fields, totals first
    for (const std::string& one : fields) {
      if (one.starts_with(path + ".")) below.push_back(one);
    }
    std::ranges::stable_sort(below, {}, [](const std::string& one) {
      return !one.substr(one.rfind('.') + 1).starts_with("total_") || one.ends_with("_ps");
    });
    if (ending.empty() && !below.empty()) {
      below.resize(std::min<std::size_t>(below.size(), 3));
      return InvalidInput("'{}' is a group of fields; name one of them, as {}",
                          Printable(field, 80), fmt::join(below, ", "));
    }
    if (ending.size() != 1) {
      std::vector<std::string_view> valid(fields.begin(), fields.end());
      if (!ending.empty()) valid.assign(ending.begin(), ending.end());
      const std::vector<std::string> near = Nearest(path, valid, 3);
      return InvalidInput("there is no numeric field '{}'; {}{}", Printable(field, 80),
                          near.empty()
                              ? "'orrery simulate --json -' shows them all, such as step_time_s"
                              : "did you mean ",
                          fmt::join(near, ", "));
    }
    path = ending.front();
  }
  std::set<std::string> seen = {path};
  return state_->Explain(path, kMostDepth, &seen);
}

// The step with each resource a tenth better, the largest gain first.
std::vector<Purchase> Explainer::State::Purchases(const cluster::Spec& spec) {
  const auto rate = [](double value, std::string_view unit) {
    return fmt::format("{:.0f}{}", value * 1.1, unit);
  };
  const std::vector<std::pair<std::string, std::string>> resources = {
      {"cluster.nic_bandwidth", rate(static_cast<double>(spec.nic_Bps), "B/s")},
      {"cluster.nvlink_bandwidth", rate(static_cast<double>(spec.nvlink_Bps), "B/s")},
      {"cluster.pcie_bandwidth", rate(static_cast<double>(spec.pcie_Bps), "B/s")},
      {"cluster.device.memory_bandwidth",
       rate(static_cast<double>(spec.device.memory_bandwidth_Bps), "B/s")},
      {"cluster.device.fp16", rate(spec.device.fp16_flops, "FLOP/s")},
      {"cluster.device.fp8", rate(spec.device.fp8_flops, "FLOP/s")},
      {"cluster.cpu_relative_speed", fmt::format("{}", spec.cpu_relative_speed * 1.1)}};
  const auto step = result.at("step_time_ps").get<double>();
  std::vector<Purchase> purchases;
  for (const auto& [key, value] : resources) {
    const Result<Json> run = Run(constants::Set::Fitted(), {fmt::format("{}={}", key, value)});
    if (!run.ok()) continue;  // a device without fp8, a rate at its limit
    purchases.push_back({key, value, run->at("step_time_ps").get<double>() / step - 1});
  }
  std::stable_sort(purchases.begin(), purchases.end(),
                   [](const Purchase& a, const Purchase& b) { return a.change < b.change; });
  return purchases;
}

// Each part's share of the interval's variance, the largest first.
std::vector<Narrowing> Explainer::State::Narrowings(const constants::StepShares& step) {
  const constants::Spreads spreads = constants::FittedSpreads();
  std::vector<Narrowing> narrowings;
  const auto add = [&](std::string what, std::string remedy, double scale) {
    narrowings.push_back({std::move(what), std::move(remedy), scale * scale});
  };
  add("kernels", "kernels: measured, with tables of this GPU (tools/measure)",
      step.kernels * spreads.kernels);
  add("communication", "nccl-tests of this cluster (orrery calibrate)",
      step.communication * spreads.communication);
  add("waiting and bubbles", "a measured step of this job", step.waiting * spreads.waiting);
  add("host", "a trace of one rank", step.host * spreads.host);
  add("experts", "measured routing (training.moe_routing: FILE.csv)",
      step.experts ? spreads.experts : 0);
  add("what every prediction is off", "nothing that a user can give", spreads.base);
  double sum = 0;
  for (const Narrowing& n : narrowings) sum += n.share;
  for (Narrowing& n : narrowings) n.share = sum > 0 ? n.share / sum : 0;
  std::stable_sort(narrowings.begin(), narrowings.end(),
                   [](const Narrowing& a, const Narrowing& b) { return a.share > b.share; });
  return narrowings;
}

Result<Summary> Explainer::Summarise() {
  Summary summary;
  ORRERY_ASSIGN_OR_RETURN(summary.step, Explain("step_time_ps"));
  ORRERY_ASSIGN_OR_RETURN(const job::Job job, state_->Read(constants::Set::Fitted(), {}));
  job::SimulateOptions options;
  options.measured_database = state_->measured_database;
  ORRERY_ASSIGN_OR_RETURN(const job::Simulation simulation,
                          job::Simulation::Prepare(job, options, &state_->caches));
  ORRERY_ASSIGN_OR_RETURN(summary.path, simulation.CriticalPath());
  summary.purchases = state_->Purchases(job.cluster);
  try {
    const Json& result = state_->result;
    const bool experts = job.workloads[0].model.experts.count > 0;
    summary.narrowing = State::Narrowings(
        results::SharesOf(results::BreakdownFrom(result.at("breakdown").at("overall"), "_ps"),
                          result.at("provenance").at("spread"), experts));
  } catch (const Json::exception& error) {
    return InvalidInput("the result is not whole: {}", Printable(error.what(), 120));
  }
  return summary;
}

}  // namespace orrery::search
