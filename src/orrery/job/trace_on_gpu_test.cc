// Traces made without a GPU against an H200 that ran the same programs (examples/traces/h200).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "orrery/formats/csv.h"
#include "orrery/job/importers.h"
#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

const std::string kGpuTraces = ORRERY_SOURCE_DIR "/examples/traces/h200";

results::TraceResult ReplayedOnGpu(const std::string& name, std::vector<std::string> set,
                                   const std::string& cluster = "h200-ib-400g") {
  const TraceFiles files = OpenTrace({kGpuTraces + "/" + name});
  const auto importer = FindImporter(files, "");
  EXPECT_TRUE(importer.ok() && *importer != nullptr);
  if (name.ends_with("expandable")) set.push_back("memory.allocator=expandable_segments:True");
  auto result = SimulateTrace(**importer, files, {.cluster = cluster, .set = std::move(set)});
  EXPECT_TRUE(result.ok()) << name << ": " << result.status().message();
  return *std::move(result);
}

struct Row {
  std::string name;
  double step_ms = 0;  // 0: not known
  double allocated = 0, reserved = 0;
};
std::vector<Row> Rows() {
  const auto table = formats::CsvTable::Read(kGpuTraces + "/measured.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  if (!table.ok()) return {};
  std::vector<Row> rows;
  for (std::size_t r = 0; r < table->rows(); ++r) {
    const auto number = [&](std::size_t column) {
      const std::string cell(table->cell(r, column));
      return cell.empty() ? 0 : std::stod(cell);
    };
    rows.push_back({std::string(table->cell(r, 0)), number(1), number(4), number(5)});
  }
  return rows;
}

TEST(TraceOnGpu, MemoryAndStepAreWithinTheirBounds) {
  double worst_reserved = 0;
  int steps = 0;
  const std::vector<Row> rows = Rows();
  ASSERT_EQ(rows.size(), 13U);
  for (const Row& row : rows) {
    const results::TraceResult result = ReplayedOnGpu(row.name, {});
    ASSERT_EQ(result.memory.size(), 1U) << row.name;
    const auto& memory = result.memory[0].replay;
    EXPECT_NEAR(static_cast<double>(memory.peak_allocated) / row.allocated, 1, 0.01) << row.name;
    worst_reserved = std::max(
        worst_reserved, std::abs(static_cast<double>(memory.peak_reserved) / row.reserved - 1));
    if (row.step_ms == 0) continue;
    ++steps;
    const double step_ms = static_cast<double>(result.record.jobs[0].step_time) / 1e9;
    EXPECT_NEAR(step_ms / row.step_ms, 1, 0.03) << row.name;
  }
  EXPECT_EQ(steps, 12);
  EXPECT_LT(worst_reserved, 0.08);  // three of thirteen beyond 3 %: docs/tracing.md
}

// The times hold on the GPU that took them; elsewhere the model prices the kernels.
TEST(TraceOnGpu, AnotherGpuIsPriced) {
  const results::TraceResult here = ReplayedOnGpu("llama4", {});
  const results::TraceResult named = ReplayedOnGpu("llama4", {"trace.gpu=A100-SXM4-80GB"});
  const results::TraceResult there = ReplayedOnGpu("llama4", {}, "a100-80g-ib-200g");
  const auto step = [](const results::TraceResult& r) { return r.record.jobs[0].step_time; };
  const auto says = [](const results::TraceResult& r, const std::string& text) {
    return std::ranges::any_of(
        r.assumed, [&](const std::string& a) { return a.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(says(here, "kernels take what the trace measured on the H200-SXM5-141GB"));
  EXPECT_TRUE(says(named, "on the H200-SXM5-141GB the model prices them"));
  EXPECT_TRUE(says(there, "the model prices them"));
  EXPECT_NE(step(here), step(named));
  EXPECT_GT(step(there), step(named));
  EXPECT_EQ(here.memory[0].replay.peak_allocated, named.memory[0].replay.peak_allocated);
}

}  // namespace
}  // namespace orrery::job
