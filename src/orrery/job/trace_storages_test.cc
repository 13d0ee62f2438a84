#include "orrery/job/trace_storages.h"

#include <gtest/gtest.h>

#include "orrery/job/trace.h"

namespace orrery::job {
namespace {

const std::string kStorageTraces = ORRERY_SOURCE_DIR "/examples/traces";

Result<results::TraceResult> WithStorages(const std::string& name, const TraceOptions& options) {
  const TraceFiles files = OpenTrace({kStorageTraces + "/" + name});
  const auto importer = FindImporter(files, "");
  EXPECT_TRUE(importer.ok());
  EXPECT_EQ((*importer)->name, "orrery-trace");
  return SimulateTrace(**importer, files, options);
}

// What the replay adds up is what the tracer counted, to the byte: nothing is lost or counted
// twice.
TEST(TraceStorages, PeaksAreTheTracers) {
  for (const char* name : {"ddp", "tp", "fsdp2", "hybrid", "megatron", "pipeline"}) {
    const auto directory = formats::ReadTraceDirectory(kStorageTraces + "/" + name, 1 << 26);
    ASSERT_TRUE(directory.ok());
    const auto result = WithStorages(name, {.cluster = "h100-ib-400g"});
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(result->memory.size(), directory->programs.size());
    std::uint32_t ranks = 0;
    for (std::size_t p = 0; p < directory->programs.size(); ++p) {
      const results::TraceMemory& m = result->memory[p];
      EXPECT_EQ(m.replay.peak_requested, directory->programs[p].trace.peak_bytes) << name;
      // Each storage takes a block of whole 512 bytes, and cuBLAS has two workspaces.
      EXPECT_GE(m.replay.peak_allocated, m.replay.peak_requested + m.replay.workspaces) << name;
      EXPECT_GE(m.replay.peak_reserved, m.replay.peak_allocated) << name;
      EXPECT_FALSE(m.peak_at.empty());
      ranks += m.ranks;
    }
    EXPECT_EQ(ranks, directory->world_size) << name;
  }
}

TEST(TraceStorages, AStepHasATime) {
  const auto result = WithStorages("megatron", {.cluster = "h100-ib-400g"});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->repeats);
  EXPECT_GT(result->record.jobs[0].step_time, 0);
  EXPECT_LT(result->record.jobs[0].step_time, result->record.finish_time);
  EXPECT_GT(result->model_flops, 0);
}

// FSDP2 gathers and scatters on streams of their own: kernels beside them are slower.
// On a host that keeps ahead: on others so small a model waits for it, and nothing overlaps.
TEST(TraceStorages, CommunicationOnSideStreamsSlowsKernels) {
  const auto result =
      WithStorages("fsdp2", {.cluster = "h100-ib-400g", .set = {"cluster.cpu_relative_speed=10"}});
  ASSERT_TRUE(result.ok());
  const auto interference = static_cast<std::size_t>(engine::Part::kInterference);
  EXPECT_GT(result->record.classes[0].breakdown[interference], 0);
}

// On a device that is 8 MiB short of what the step reserves, the report says where it ends.
TEST(TraceStorages, OutOfMemoryIsNamed) {
  const auto whole = WithStorages("fsdp2", {.cluster = "h100-ib-400g"});
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->out_of_memory());
  const std::int64_t bytes = whole->memory[0].total() - (8 << 20);
  const auto result = WithStorages(
      "fsdp2",
      {.cluster = "h100-ib-400g", .set = {"cluster.device.memory=" + std::to_string(bytes) + "B"}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(result->out_of_memory());
  const results::TraceMemory& m = result->memory[0];
  EXPECT_FALSE(m.oom_at.empty());
  EXPECT_LT(m.replay.oom->device_free, 20 << 20);  // a segment
}

TEST(TraceStorages, TheAllocatorCanBeSet) {
  const auto whole = WithStorages("fsdp2", {.cluster = "h100-ib-400g"});
  const auto expandable = WithStorages(
      "fsdp2", {.cluster = "h100-ib-400g", .set = {"memory.allocator=expandable_segments:True"}});
  ASSERT_TRUE(whole.ok() && expandable.ok());
  EXPECT_LT(expandable->memory[0].replay.peak_reserved, whole->memory[0].replay.peak_reserved);
  const auto wrong =
      WithStorages("fsdp2", {.cluster = "h100-ib-400g", .set = {"memory.allocator=expandable:1"}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("memory.allocator"), std::string::npos);
}

}  // namespace
}  // namespace orrery::job
