#include "orrery/job/read_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/job/plan_keys.h"
#include "orrery/workload/schedule_file.h"
#include "orrery/workload/stage_layers.h"

namespace orrery::job {

using workload::Plan;

namespace {

// A user's own list of passes.
Status ReadGiven(const Source& source, const Setting& setting, const std::string& path,
                 Plan* plan) {
  constexpr std::int64_t kMostBytes = 256 << 20;
  Result<std::string> text = ReadFile(source.Path(path), kMostBytes);
  if (!text.ok()) return std::move(text).TakeStatus().In(setting.where + ": schedule");
  ORRERY_ASSIGN_OR_RETURN(workload::GivenSchedule schedule, workload::ParseSchedule(path, *text));
  plan->parallel.schedule = workload::Schedule::kGiven;
  plan->parallel.given = std::make_shared<const workload::GivenSchedule>(std::move(schedule));
  return {};
}

// A list with equal entries that follow each other counted: "0, 126 of 1, 0".
std::string InRuns(const std::vector<int>& list) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < list.size(); i = end) {
    while (end < list.size() && list[end] == list[i]) ++end;
    text += text.empty() ? "" : ", ";
    text += end - i > 2    ? fmt::format("{} × {}", end - i, list[i])
            : end - i == 2 ? fmt::format("{0}, {0}", list[i])
                           : fmt::format("{}", list[i]);
  }
  return text;
}

const std::vector<std::int64_t>* GivenStageLayers(const Section& parallel) {
  const Setting* const said = parallel.Find("layers_per_stage");
  return said == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(&said->value);
}

std::string StageCutOf(const Section& parallel) {
  return parallel.Has("layers_per_stage") ? parallel.Text("layers_per_stage") : "auto";
}

}  // namespace

Status ReadParallel(const Source& source, const Section& parallel, std::optional<std::size_t> gpus,
                    Plan* plan, std::vector<std::string>* assumed) {
  plan->parallel.tp = static_cast<int>(parallel.Integer("tp"));
  plan->parallel.pp = static_cast<int>(parallel.Integer("pp"));
  plan->parallel.vpp = static_cast<int>(parallel.Integer("vpp"));
  plan->parallel.sequence_parallel = parallel.Bool("sequence_parallel");
  if (parallel.Has("microbatch_group")) {
    plan->parallel.microbatch_group = static_cast<int>(parallel.Integer("microbatch_group"));
  }
  plan->parallel.cp = static_cast<int>(parallel.Integer("cp"));
  plan->parallel.ep = static_cast<int>(parallel.Integer("ep"));
  if (parallel.Has("etp")) plan->parallel.etp = static_cast<int>(parallel.Integer("etp"));
  if (parallel.Has("shard_group")) {
    plan->memory.shard_group = static_cast<int>(parallel.Integer("shard_group"));
  }
  plan->parallel.rank_order = Choose(kRankOrders, parallel.Text("rank_order"));
  if (parallel.Has("dp")) {
    plan->parallel.dp = static_cast<int>(parallel.Integer("dp"));
    return {};
  }
  const std::int64_t replica =
      std::int64_t{plan->parallel.tp} * plan->parallel.pp * plan->parallel.cp;
  if (gpus) {
    const auto offered = static_cast<std::int64_t>(*gpus);
    if (offered < replica || offered % replica != 0) {
      return InvalidInput(
          "{}: parallel.dp is not given and cannot be derived: {} GPUs are not a multiple of tp {} "
          "· pp {}{} = {}; give dp or change nodes",
          source.name(), offered, plan->parallel.tp, plan->parallel.pp,
          plan->parallel.cp > 1 ? fmt::format(" · cp {}", plan->parallel.cp) : "", replica);
    }
    plan->parallel.dp = static_cast<int>(offered / replica);
  }
  assumed->push_back(gpus ? fmt::format("parallel.dp: {}, follows from {} GPUs", plan->parallel.dp,
                                        HumanCount(static_cast<std::int64_t>(*gpus)))
                          : "parallel.dp: 1, since neither dp nor nodes is given");
  return {};
}

Status ReadSchedule(const Source& source, const Section& top, Plan* plan,
                    std::vector<std::string>* assumed) {
  using workload::Schedule;
  if (const Setting* schedule = top.Find("schedule")) {
    const std::string name = top.Text("schedule");
    if (name.ends_with(".schedule")) return ReadGiven(source, *schedule, name, plan);
    Result<Schedule> found = workload::FindSchedule(Printable(top.Text("schedule")));
    if (!found.ok()) return std::move(found).TakeStatus().In(schedule->where + ": schedule");
    plan->parallel.schedule = *found;
    return {};
  }
  plan->parallel.schedule = plan->parallel.vpp > 1 ? Schedule::k1f1bInterleaved : Schedule::k1f1b;
  if (plan->parallel.pp > 1) {
    assumed->push_back(
        fmt::format("schedule: {}",
                    workload::Schedules()[static_cast<std::size_t>(plan->parallel.schedule)].name));
  }
  return {};
}

Status ReadStageLayers(const Section& parallel, const workload::Model& model, Plan* plan) {
  if (const auto* given = GivenStageLayers(parallel)) {
    plan->parallel.layers_per_stage.assign(given->begin(), given->end());
    return {};
  }
  const std::int64_t chunks =
      std::int64_t{plan->parallel.pp} * (plan->dual() ? 1 : plan->parallel.vpp);
  const workload::StageCut cut = Choose(workload::kStageCuts, StageCutOf(parallel));
  if (const std::string problem = workload::CutProblem(cut, model, chunks); !problem.empty()) {
    return InvalidInput("{}", problem).In(parallel.Where("layers_per_stage"));
  }
  plan->parallel.layers_per_stage = workload::CutLayers(cut, model.layers, chunks);
  return {};
}

void SayStageLayers(const Section& parallel, const workload::Model& model, const Plan& plan,
                    std::vector<std::string>* assumed) {
  if (GivenStageLayers(parallel) != nullptr) return;
  const auto layers = workload::LayersPerChunk(model, plan);
  if (!layers.ok() || std::ranges::count(*layers, layers->front()) == std::ssize(*layers)) return;
  const bool by_rule = !plan.parallel.layers_per_stage.empty();
  assumed->push_back(fmt::format("parallel.layers_per_stage: {} gives [{}]{}",
                                 by_rule ? StageCutOf(parallel) : "auto", InRuns(*layers),
                                 by_rule ? "" : ", embedding and loss counted as a layer each"));
}

}  // namespace orrery::job
