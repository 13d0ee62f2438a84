#include "orrery/results/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/results/campaign_report.h"
#include "orrery/results/parts.h"
#include "orrery/results/table.h"

namespace orrery::results {
namespace {

constexpr std::size_t kWidth = 96;

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

// A field of the headline; texts that are long go on below their own beginning.
void Field(std::string_view name, std::string_view text, Writer* out) {
  out->Wrapped(fmt::format("  {:<13}", name), std::string(15, ' '), text);
}

std::string MemoryText(const JobResult& job, const MemoryRow& fullest) {
  return fmt::format("{} of {} (stage {}); 80% interval {} to {}", HumanBytes(fullest.total()),
                     HumanBytes(job.device_bytes), fullest.stage,
                     HumanBytes(job.memory_low_bytes()), HumanBytes(job.memory_high_bytes()));
}

void WriteVerdict(const JobResult& job, Writer* out) {
  const MemoryRow* fullest = job.fullest();
  if (fullest == nullptr) return;
  switch (job.verdict()) {
    case Verdict::kFits:
      Field("verdict",
            fmt::format("fits, {} to spare", HumanBytes(job.device_bytes - fullest->total())), out);
      break;
    case Verdict::kClose:
      if (const memory::Footprint& f = fullest->footprint; f.retries > 0) {
        Field(
            "verdict",
            fmt::format("close: fits once PyTorch's allocator empties its cache; tensors take {}; "
                        "memory is not known that exactly, so try it",
                        HumanBytes(f.peak_allocated)),
            out);
        break;
      }
      Field("verdict",
            fmt::format("close: fits with {} to spare; memory is not known that exactly, so try it",
                        HumanBytes(job.device_bytes - fullest->total())),
            out);
      break;
    case Verdict::kOutOfMemory:
      Field("verdict", "DOES NOT FIT; times below are what it would take on a larger GPU", out);
      if (!job.memory_remedy.empty()) Field("", job.memory_remedy, out);
      break;
  }
}

void WriteHeadline(const JobResult& job, Writer* out) {
  WriteVerdict(job, out);
  const bool would = job.out_of_memory();  // it does not run: no figure stands as if it did
  const std::string_view be = would ? "would be " : "";
  Field("step time",
        fmt::format("{}{}; 80% interval {} to {}", be, HumanTime(job.step_time),
                    HumanSeconds(job.interval_low_s), HumanSeconds(job.interval_high_s)),
        out);
  if (job.tokens_per_s > 0) {
    Field("throughput",
          fmt::format("{}{} tokens/s", be,
                      HumanCount(static_cast<std::int64_t>(job.tokens_per_s + 0.5))),
          out);
  }
  if (job.model_tflops_per_gpu > 0) {
    std::string line = fmt::format("{}{:.1f} TFLOP/s per GPU", be, job.model_tflops_per_gpu);
    if (job.mfu > 0)
      line += fmt::format(", MFU {} of the dense {} peak", Percent(job.mfu), job.mfu_peak);
    Field("model speed", line, out);
  }
  if (const MemoryRow* fullest = job.fullest()) {
    Field("memory", MemoryText(job, *fullest), out);
  }
  Field("bound by", BoundBy(job), out);
  if (!job.advice.empty()) Field("tried", job.advice, out);
}

void WriteOverall(const JobResult& job, bool full, Writer* out) {
  constexpr double kShown = 0.005;
  out->Heading("Where a step goes (mean over all ranks)");
  TextTable table;
  SimTime rest = 0;
  for (std::size_t i = 0; i < engine::kParts; ++i) {
    const SimTime part = job.overall.parts[i];
    if (part == 0) continue;
    if (!full && Share(part, job.overall.total) < kShown) {
      rest += part;
      continue;
    }
    const PartText text = TextOf(i);
    std::string name = PartName(i);
    std::replace(name.begin(), name.end(), '_', ' ');
    table.Row({name, HumanTime(part), Percent(Share(part, job.overall.total)),
               std::string(text.meaning)});
  }
  if (rest > 0) {
    table.Row(
        {"the rest", HumanTime(rest), Percent(Share(rest, job.overall.total)), "parts below 0.5%"});
  }
  table.Row({"step", HumanTime(job.overall.total), "100.0%", ""});
  table.AlignRight(1);
  table.AlignRight(2);
  out->Table(table);
}

// The stage whose ranks wait and idle least holds the others up; the median shows what they do.
std::vector<std::pair<std::string, const BreakdownRow*>> WorstAndMedian(const JobResult& job) {
  std::vector<const BreakdownRow*> rows;
  for (const BreakdownRow& row : job.stages) rows.push_back(&row);
  const auto idle = [](const BreakdownRow* row) {
    const auto part = [&](engine::Part p) { return row->parts[static_cast<std::size_t>(p)]; };
    return part(engine::Part::kWaiting) + part(engine::Part::kBubble);
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const BreakdownRow* a, const BreakdownRow* b) { return idle(a) < idle(b); });
  const BreakdownRow* median = rows[rows.size() / 2];
  return {{fmt::format("{} (busiest)", rows.front()->stage), rows.front()},
          {fmt::format("{} (median)", median->stage), median}};
}

void WriteStages(const JobResult& job, bool full, Writer* out) {
  if (job.stages.size() < 2) return;
  std::vector<std::pair<std::string, const BreakdownRow*>> rows;
  if (full || job.stages.size() == 2) {
    for (const BreakdownRow& row : job.stages) rows.emplace_back(std::to_string(row.stage), &row);
  } else {
    rows = WorstAndMedian(job);
  }
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
  for (const auto& [name, row] : rows) {
    std::vector<std::string> cells = {name, HumanCount(row->ranks)};
    for (const std::size_t i : shown) cells.push_back(Percent(Share(row->parts[i], row->total)));
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
}

// Where it no longer fits: a line for the first program.
void WriteOutOfMemory(const JobResult& job, Writer* out) {
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
}

void WriteJob(const JobResult& job, bool named, bool full, Writer* out) {
  out->Heading(named ? fmt::format("Job {}", Printable(job.name, 40)) : "The job");
  out->Wrapped("  ", "  ", Printable(job.description, 400));
  WriteHeadline(job, out);
  WriteOverall(job, full, out);
  WriteStages(job, full, out);
  if (!job.memory.empty() && (full || job.out_of_memory())) WriteMemory(job, out);
  WriteOutOfMemory(job, out);
  if (job.goodput) {
    out->Heading("With failures");
    out->Text(GoodputText(*job.goodput));
  }
  if (job.cost) {
    out->Heading(job.goodput ? "Cost, failures included" : "Cost, if nothing fails");
    out->Text(CostText(*job.cost));
  }
}

void WriteSharing(const Sharing& sharing, std::string_view network, Writer* out) {
  out->Heading(fmt::format("The jobs beside each other (network {})", Printable(network)));
  const std::string summary = SharingSummary(sharing);
  if (!summary.empty()) out->Wrapped("  ", "  ", summary);
  out->Text(SharingText(sharing));
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
  if (simulation.events_repeated > 0) {
    out->Line(fmt::format("  {} of the events below repeat others with the micro-batch moved on",
                          HumanCount(static_cast<std::int64_t>(simulation.events_repeated))));
  }
  out->Line(fmt::format("  {} events, {} iterations, {} thread{}, {} wall time, {} peak memory",
                        HumanCount(static_cast<std::int64_t>(simulation.events)),
                        simulation.iterations, simulation.threads_used,
                        simulation.threads_used == 1 ? "" : "s", HumanSeconds(simulation.wall_s),
                        HumanBytes(simulation.peak_rss_bytes)));
  out->Line(fmt::format("  version {}, seed {}, configuration {:016x}, fingerprint {:016x}",
                        simulation.version, simulation.seed, simulation.config_hash,
                        simulation.fingerprint));
}

bool Holds(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

void WriteLines(std::string_view heading, const std::vector<std::string>& lines, Writer* out) {
  if (lines.empty()) return;
  out->Heading(heading);
  for (const std::string& line : lines) out->Bullet(Printable(line, 1000));
}

// In three parts: what was filled in, what of the user's files does nothing, and what frameworks do
// that a newcomer would not guess. `full`: all that their defaults are.
void WriteAssumed(const RunResult& result, bool full, Writer* out) {
  std::vector<std::string> filled;
  for (const std::string& line : result.assumed) {
    if (Holds(result.ignored, line) || Holds(result.defaults, line)) continue;
    filled.push_back(line);
  }
  WriteLines("Assumed (say otherwise in the job file or with --set)", filled, out);
  WriteLines("In your files, without effect", result.ignored, out);
  WriteLines(full ? "The framework's defaults"
                  : "What the framework does that you may not expect (keys of framework_options)",
             full ? result.defaults : result.switches, out);
}

}  // namespace

std::string Report(const RunResult& result, const ReportOptions& options) {
  Writer out(options.color);
  const bool mixed = result.sharing && !result.sharing->steps;
  out.Wrapped("", "",
              fmt::format("{} on {}, by Orrery", mixed ? "Jobs" : "A training step",
                          Printable(result.cluster, 400)));
  if (mixed) WriteSharing(*result.sharing, result.network, &out);
  for (const JobResult& job : result.jobs) {
    if (mixed && !options.full) break;
    WriteJob(job, result.jobs.size() > 1 || mixed, options.full, &out);
  }
  if (result.sharing && !mixed) WriteSharing(*result.sharing, result.network, &out);
  if (options.full) {
    WriteNetwork(result, &out);
    WriteOrigin(result, &out);
  }
  WriteAssumed(result, options.full, &out);
  WriteLines("Warnings", result.warnings, &out);
  if (options.full) {
    WriteSimulation(result.simulation, &out);
  } else {
    out.Line(
        "\nMore with --full: every stage, memory by part, network, where the numbers come from.");
  }
  return out.Take();
}

}  // namespace orrery::results
