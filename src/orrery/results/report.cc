#include "orrery/results/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/results/campaign_report.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

constexpr std::size_t kWidth = 96;

// What each part of the step means to somebody who has not read the design.
struct PartText {
  std::string_view heading;  // of the column in the table of stages
  std::string_view meaning;
};
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
      return {"TP", "tensor- and sequence-parallel communication, not hidden"};
    case GroupSlot::kDp:
      return {"DP", "data-parallel communication, not hidden"};
    case GroupSlot::kPp:
      return {"PP", "activations between pipeline stages, not hidden"};
    case GroupSlot::kCp:
      return {"CP", "context-parallel communication, not hidden"};
    case GroupSlot::kEp:
      return {"EP", "expert-parallel communication, not hidden"};
    case GroupSlot::kEmbedding:
      return {"embed.", "tied embeddings' gradient between first and last stage"};
    case GroupSlot::kModel:
      return {"model", "gradient norm over the model's ranks"};
    case GroupSlot::kExpertTp:
      return {"ETP", "tensor-parallel communication inside experts, not hidden"};
    case GroupSlot::kExpertDp:
      return {"EDP", "data-parallel communication of experts, not hidden"};
    case GroupSlot::kShard:
      return {"shard", "data-parallel communication inside a shard group, not hidden"};
    case GroupSlot::kOffload:
      return {"offload", "copies between device and host, not hidden"};
    case GroupSlot::kReplica:
      return {"replica", "data-parallel communication between shard groups, not hidden"};
    case GroupSlot::kCount:
      break;
  }
  return {"", ""};
}

class Writer {
 public:
  explicit Writer(bool color) : color_(color) {}
  void Heading(std::string_view text) {
    text_ += color_ ? fmt::format("\n\x1b[1m{}\x1b[0m\n", text) : fmt::format("\n{}\n", text);
  }
  void Text(std::string_view lines) { text_ += lines; }
  void Line(std::string_view text) { text_ += fmt::format("{}\n", text); }
  void Bullet(std::string_view text) { Wrapped("  - ", "    ", text); }
  // Words in lines of the page's width; `first` and `rest` begin the lines.
  void Wrapped(std::string_view first, std::string_view rest, std::string_view text) {
    std::string line(first);
    bool fresh = true;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      const std::string_view word = text.substr(at, end - at);
      if (!fresh && DisplayWidth(line) + 1 + DisplayWidth(word) > kWidth) {
        Line(line);
        line = rest;
        fresh = true;
      }
      if (!fresh) line += ' ';
      line += word;
      fresh = false;
      at = end + 1;
    }
    Line(line);
  }
  void Table(const TextTable& table) { text_ += table.Render("  "); }
  std::string Take() { return std::move(text_); }

 private:
  bool color_;
  std::string text_;
};

std::string Percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

double Share(SimTime part, SimTime total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

void WriteHeadline(const JobResult& job, Writer* out) {
  out->Line(fmt::format("  step time    {:<14} 80% interval {} to {}", HumanTime(job.step_time),
                        HumanSeconds(job.interval_low_s), HumanSeconds(job.interval_high_s)));
  if (job.tokens_per_s > 0) {
    out->Line(fmt::format("  throughput   {} tokens/s",
                          HumanCount(static_cast<std::int64_t>(job.tokens_per_s + 0.5))));
  }
  if (job.model_tflops_per_gpu > 0) {
    std::string line =
        fmt::format("  model speed  {:.1f} TFLOP/s per GPU", job.model_tflops_per_gpu);
    if (job.mfu > 0) line += fmt::format(", MFU {} of the GPU's dense peak", Percent(job.mfu));
    out->Line(line);
  }
  const auto fullest = std::max_element(
      job.memory.begin(), job.memory.end(),
      [](const MemoryRow& a, const MemoryRow& b) { return a.total() < b.total(); });
  if (fullest == job.memory.end()) return;
  out->Line(fmt::format("  memory       {}: {} of {} on the fullest GPU (stage {})",
                        job.out_of_memory() ? "DOES NOT FIT" : "fits", HumanBytes(fullest->total()),
                        HumanBytes(job.device_bytes), fullest->stage));
}

void WriteOverall(const JobResult& job, Writer* out) {
  out->Heading("Where a step goes (mean over all ranks)");
  TextTable table;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    const SimTime part = job.overall.parts[i];
    if (part == 0) continue;
    const PartText text = TextOf(i);
    std::string name = PartName(i);
    std::replace(name.begin(), name.end(), '_', ' ');
    table.Row({name, HumanTime(part), Percent(Share(part, job.overall.total)),
               std::string(text.meaning)});
  }
  table.Row({"step", HumanTime(job.overall.total), "100.0%", ""});
  table.AlignRight(1);
  table.AlignRight(2);
  out->Table(table);
}

void WriteStages(const JobResult& job, Writer* out) {
  if (job.stages.size() < 2) return;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    if (std::any_of(job.stages.begin(), job.stages.end(), [&](const BreakdownRow& row) {
          return Share(row.parts[i], row.total) >= 0.0005;
        })) {
      shown.push_back(i);
    }
  }
  out->Heading("By pipeline stage (share of the step)");
  TextTable table;
  std::vector<std::string> heading = {"stage", "ranks"};
  for (const std::size_t i : shown) heading.emplace_back(TextOf(i).heading);
  table.Row(std::move(heading));
  for (const BreakdownRow& row : job.stages) {
    std::vector<std::string> cells = {std::to_string(row.stage), HumanCount(row.ranks)};
    for (const std::size_t i : shown) cells.push_back(Percent(Share(row.parts[i], row.total)));
    table.Row(std::move(cells));
  }
  for (std::size_t i = 0; i < shown.size() + 2; ++i) table.AlignRight(i);
  out->Table(table);
}

std::string_view ShortName(graph::MemoryKind kind) {
  using graph::MemoryKind;
  switch (kind) {
    case MemoryKind::kParameter:
      return "params";
    case MemoryKind::kGradient:
      return "grads";
    case MemoryKind::kOptimizer:
      return "optim.";
    case MemoryKind::kActivation:
      return "activ.";
    case MemoryKind::kTemporary:
      return "temp.";
    case MemoryKind::kCommunication:
      return "comm.";
    case MemoryKind::kCount:
      break;
  }
  return "?";
}

void WriteMemory(const JobResult& job, Writer* out) {
  if (job.memory.empty()) return;
  out->Heading("GPU memory at its peak, per program (GiB)");
  TextTable table;
  std::vector<std::string> heading = {"program", "ranks"};
  for (std::size_t i = 0; i < memory::kKinds; ++i) {
    heading.emplace_back(ShortName(static_cast<graph::MemoryKind>(i)));
  }
  for (const char* name : {"alloc.", "reserved", "context", "total", ""}) {
    heading.emplace_back(name);
  }
  table.Row(std::move(heading));
  const auto gib = [](std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
  };
  for (const MemoryRow& row : job.memory) {
    const memory::Footprint& f = row.footprint;
    std::vector<std::string> cells = {Printable(row.program, 24), HumanCount(row.ranks)};
    for (const std::int64_t part : f.at_peak) cells.push_back(gib(part));
    for (const std::int64_t bytes :
         {f.peak_allocated, f.peak_reserved, f.context_bytes, row.total()}) {
      cells.push_back(gib(bytes));
    }
    cells.push_back(f.oom ? "OUT OF MEMORY" : "");
    table.Row(std::move(cells));
  }
  for (std::size_t i = 1; i < memory::kKinds + 6; ++i) table.AlignRight(i);
  out->Table(table);
  for (const MemoryRow& row : job.memory) {
    if (!row.footprint.oom) continue;
    const memory::OutOfMemory& state = row.footprint.oom_state;
    out->Bullet(fmt::format(
        "{} runs out of memory at {}: {} more beside {} allocated; {} is free on the device, {} "
        "cached (largest block {})",
        Printable(row.program, 40), Printable(row.footprint.oom_op), HumanBytes(state.requested),
        HumanBytes(state.allocated), HumanBytes(state.device_free),
        HumanBytes(state.reserved - state.allocated), HumanBytes(state.largest_cached)));
    break;
  }
  if (!job.memory_remedy.empty()) out->Bullet(job.memory_remedy);
}

void WriteJob(const JobResult& job, bool named, Writer* out) {
  out->Heading(named ? fmt::format("Job {}", Printable(job.name, 40)) : "The job");
  out->Wrapped("  ", "  ", Printable(job.description, 400));
  WriteHeadline(job, out);
  WriteOverall(job, out);
  WriteStages(job, out);
  WriteMemory(job, out);
  if (job.goodput) {
    out->Heading("With failures");
    out->Text(GoodputText(*job.goodput));
  }
  if (job.cost) {
    out->Heading(job.goodput ? "Cost, failures included" : "Cost, if nothing fails");
    out->Text(CostText(*job.cost));
  }
}

void WriteNetwork(const RunResult& result, Writer* out) {
  out->Heading(fmt::format("Network (back end {}, whole run)", Printable(result.network)));
  TextTable table;
  for (const engine::LinkClassUse& use : result.links) {
    table.Row({Printable(use.name), HumanBytes(use.bytes),
               fmt::format("busy {}", Percent(use.busy_share))});
  }
  table.AlignRight(1);
  out->Table(table);
  if (result.packets) out->Line(PacketsText(*result.packets));
  if (result.worst_links.empty()) return;
  constexpr std::size_t kShown = 5;
  TextTable worst;
  for (std::size_t i = 0; i < std::min(kShown, result.worst_links.size()); ++i) {
    const WorstLink& link = result.worst_links[i];
    worst.Row({i == 0 ? "worst links" : "", Printable(link.name), HumanBytes(link.bytes),
               fmt::format("busy {}", Percent(link.busy_share)),
               fmt::format("used {}", Percent(link.utilisation))});
  }
  worst.AlignRight(2);
  out->Table(worst);
}

void WriteOrigin(const RunResult& result, Writer* out) {
  out->Heading("Where the kernel times come from (share of kernel time)");
  std::string line = "  ";
  for (std::size_t i = 0; i < result.provenance.size(); ++i) {
    if (result.provenance[i] == 0) continue;
    line += fmt::format("{} {}   ", compute::Name(static_cast<compute::Provenance>(i)),
                        Percent(result.provenance[i]));
  }
  out->Line(line + fmt::format("spread ±{}", Percent(result.compute_spread)));
}

void WriteSimulation(const Simulation& simulation, Writer* out) {
  out->Heading("The simulation");
  std::string folded =
      fmt::format("{} of {} ranks simulated", HumanCount(simulation.ranks_simulated),
                  HumanCount(simulation.ranks));
  if (simulation.folded) {
    folded += " (the others behave exactly alike)";
  } else if (!simulation.not_folded_because.empty()) {
    folded += fmt::format(" (not folded: {})", Printable(simulation.not_folded_because));
  }
  out->Line("  " + folded);
  out->Line(fmt::format("  {} events, {} iterations, {} thread{}, {} wall time, {} peak memory",
                        HumanCount(static_cast<std::int64_t>(simulation.events)),
                        simulation.iterations, simulation.threads_used,
                        simulation.threads_used == 1 ? "" : "s", HumanSeconds(simulation.wall_s),
                        HumanBytes(simulation.peak_rss_bytes)));
  out->Line(fmt::format("  version {}, seed {}, configuration {:016x}, fingerprint {:016x}",
                        simulation.version, simulation.seed, simulation.config_hash,
                        simulation.fingerprint));
}

}  // namespace

std::string Report(const RunResult& result, const ReportOptions& options) {
  Writer out(options.color);
  out.Wrapped(
      "", "",
      fmt::format("A training step, simulated by Orrery on {}", Printable(result.cluster, 400)));
  for (const JobResult& job : result.jobs) WriteJob(job, result.jobs.size() > 1, &out);
  WriteNetwork(result, &out);
  WriteOrigin(result, &out);
  if (!result.assumed.empty()) {
    out.Heading("Assumed (say otherwise in the job file or with --set)");
    for (const std::string& line : result.assumed) out.Bullet(Printable(line, 1000));
  }
  if (!result.warnings.empty()) {
    out.Heading("Warnings");
    for (const std::string& line : result.warnings) out.Bullet(Printable(line, 1000));
  }
  WriteSimulation(result.simulation, &out);
  return out.Take();
}

}  // namespace orrery::results
