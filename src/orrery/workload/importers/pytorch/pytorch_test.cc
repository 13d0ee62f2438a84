// Profiles written by hand, small enough to say by hand when everything runs.
#include "orrery/workload/importers/pytorch/pytorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orrery/base/rng.h"
#include "orrery/formats/execution_trace.h"
#include "orrery/formats/kineto.h"
#include "orrery/graph/verify/verify.h"

namespace orrery::workload {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// One event; times in microseconds.
std::string Event(std::string_view category, std::string_view name, int tid, double ts, double dur,
                  std::string_view arguments) {
  return fmt::format(
      R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}, "args": {{{}}}}})",
      category, name, tid, ts, dur, arguments);
}
std::string Launch(double ts, int correlation) {
  return Event("cuda_runtime", "cudaLaunchKernel", 10, ts, 5,
               fmt::format(R"("correlation": {})", correlation));
}
std::string Kernel(std::string_view name, int stream, double ts, double dur, int correlation,
                   std::string_view more = "") {
  return Event(
      "kernel", name, stream, ts, dur,
      fmt::format(R"("device": 0, "stream": {}, "correlation": {}{})", stream, correlation, more));
}
// A rank's file: a step from 1,000 us on.
std::string File(int rank, int world, const std::vector<std::string>& events, double step_us) {
  std::string text = fmt::format(
      R"({{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "NVIDIA H100 80GB HBM3"}}],
"distributedInfo": {{"backend": "nccl", "rank": {}, "world_size": {}, "pg_config": [{{"pg_name": "0",
"pg_desc": "default_pg", "pg_size": {}, "ranks": [)",
      rank, world, world);
  for (int r = 0; r < world; ++r) text += fmt::format("{}{}", r == 0 ? "" : ", ", r);
  text += "]}]}, \"traceEvents\": [\n";
  text += Event("user_annotation", "ProfilerStep#7", 10, 1000, step_us, "");
  for (const std::string& e : events) text += ",\n" + e;
  return text + "\n]}";
}
constexpr std::string_view kAllReduce =
    R"(, "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": "[0, 1]")";

PyTorchRank Rank(const std::string& text, const std::string& name = "rank.json") {
  PyTorchRank rank;
  rank.path = name;
  Result<formats::ProfileTrace> profile = formats::ParseKineto(text, name);
  EXPECT_TRUE(profile.ok()) << profile.status().message();
  if (profile.ok()) rank.profile = *std::move(profile);
  return rank;
}
// A GPU's step: a kernel, an all-reduce that waits for it, a kernel beside, one behind a wait for
// the all-reduce. `late` moves the rank's work.
std::vector<std::string> GpuStep(double late, double end) {
  return {Launch(1010 + late, 1),
          Kernel("gemm", 7, 1020 + late, 100, 1),
          Launch(1030 + late, 2),
          Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 20, 1122 + late, end - 1122 - late,
                 2, kAllReduce),
          Launch(1050 + late, 3),
          Kernel("beside", 7, 1121 + late, 30, 3),
          Event("cuda_runtime", "cudaStreamWaitEvent", 10, 1060 + late, 2, R"("correlation": 4)"),
          Launch(1070 + late, 5),
          Kernel("behind", 7, end + 3, 40, 5),
          Event("cuda_runtime", "cudaDeviceSynchronize", 10, 1090 + late, end + 50 - 1090 - late,
                R"("correlation": 6)")};
}
Result<PyTorchImport> Import(std::vector<PyTorchRank> ranks, const PyTorchOptions& options = {}) {
  return ImportPyTorch(std::move(ranks), options, "test");
}
// The operations that `op` waits for, by name.
std::vector<std::string> WaitsFor(const graph::Graph& graph, const graph::Block& block,
                                  std::string_view name) {
  std::vector<std::string> found;
  const auto add = [&](const auto& self, std::size_t op) -> void {
    for (const graph::Dep& d : block.deps_of(op)) {
      const graph::Op& on = block.ops[d.op];
      if (on.kind == graph::OpKind::kHost) {
        if (on.stream == graph::kNoStream) self(self, d.op);  // a delay
      } else {
        found.push_back(graph.name(on.name));
      }
    }
  };
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    if (block.ops[o].name.valid() && graph.name(block.ops[o].name) == name) add(add, o);
  }
  return found;
}

TEST(PyTorchProfile, AGpuStepWithItsStreams) {
  // Rank 1 is 20 us later; both all-reduces end at 1,300: 158 us after the later began.
  const Result<PyTorchImport> import =
      Import({Rank(File(1, 2, GpuStep(20, 1300), 360)), Rank(File(0, 2, GpuStep(0, 1300), 360))});
  ASSERT_TRUE(import.ok()) << import.status().message();
  EXPECT_EQ(import->measured, 360 * kMicrosecond);
  EXPECT_EQ(import->gpu, "NVIDIA H100 80GB HBM3");
  EXPECT_THAT(import->missing, IsEmpty());
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph, graph::VerifyLevel::kFull).ok());
  ASSERT_EQ(graph.blocks.size(), 2u);
  const graph::Block& block = graph.blocks[0];
  ASSERT_EQ(block.comms.size(), 1u);
  EXPECT_EQ(block.comms[0].collective, graph::Collective::kAllReduce);
  EXPECT_EQ(block.comms[0].bytes.value, 2048);
  EXPECT_EQ(block.comms[0].dtype, graph::DType::kBf16);
  EXPECT_EQ(block.comms[0].measured.value, 158 * kMicrosecond);
  EXPECT_EQ(graph.groups.members(GroupId(std::size_t{0})).size(), 2u);
  EXPECT_THAT(WaitsFor(graph, block, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"),
              Contains("gemm"));
  EXPECT_THAT(WaitsFor(graph, block, "behind"),
              Contains("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"));
  EXPECT_THAT(WaitsFor(graph, block, "beside"), UnorderedElementsAre("gemm"));
  EXPECT_THAT(import->assumed, Contains(HasSubstr("enable_cuda_sync_events")));
}

// The profile's own events in place of what is inferred: "behind" was told to wait for "gemm" only.
TEST(PyTorchProfile, SynchronisationEventsAreReadWhereTheyAre) {
  std::vector<std::string> events = GpuStep(0, 1300);
  events.push_back(Event("cuda_sync", "Stream Wait Event", 7, 1060, 0,
                         R"("device": 0, "stream": 7, "correlation": 4, "wait_on_stream": 20,
                            "wait_on_cuda_event_record_corr_id": 1)"));
  const Result<PyTorchImport> import = Import({Rank(File(0, 1, events, 360))});
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Block& block = import->graph.blocks[0];
  EXPECT_THAT(WaitsFor(import->graph, block, "behind"), UnorderedElementsAre("beside"));
  EXPECT_THAT(import->assumed, ::testing::Not(Contains(HasSubstr("enable_cuda_sync_events"))));
}

TEST(PyTorchProfile, CopiesJoinDataParallelGroups) {
  const Result<PyTorchImport> import =
      Import({Rank(File(0, 2, GpuStep(0, 1300), 360)), Rank(File(1, 2, GpuStep(20, 1300), 360))},
             {.replicas = 4});
  ASSERT_TRUE(import.ok()) << import.status().message();
  const graph::Graph& graph = import->graph;
  ASSERT_TRUE(graph::Verify(graph, graph::VerifyLevel::kFull).ok());
  EXPECT_EQ(graph.bindings.size(), 8u);
  EXPECT_EQ(graph.programs.size(), 2u);
  ASSERT_EQ(graph.groups.size(), 1u);
  EXPECT_EQ(graph.groups.members(GroupId(std::size_t{0})).size(), 8u);
  EXPECT_EQ(graph.blocks[0].comms[0].measured.value, -1);
  EXPECT_EQ(import->measured, -1);
  EXPECT_THAT(import->assumed, Contains(HasSubstr("4 copies of the traced job")));
}

TEST(PyTorchProfile, WhatDoesNotFitIsRefusedByName) {
  const auto error = [](std::vector<PyTorchRank> ranks, const PyTorchOptions& options = {}) {
    return Import(std::move(ranks), options).status().message();
  };
  const PyTorchRank one = Rank(File(0, 2, GpuStep(0, 1300), 360));
  EXPECT_THAT(error({one}), HasSubstr("profiles of 1 of 2 ranks"));
  EXPECT_THAT(error({one}), HasSubstr("pytorch.replicas=2"));
  EXPECT_THAT(error({one, one}), HasSubstr("both of rank 0"));
  EXPECT_THAT(error({one, Rank(File(1, 2, {}, 360))}),
              HasSubstr("rank 0 has 1 collectives in this step, rank 1 has 0"));
  const PyTorchRank other = Rank(File(1, 2, GpuStep(20, 1300), 360));
  EXPECT_THAT(error({one, other}, {.step = 3}), HasSubstr("step 3 is not on all ranks"));
  std::vector<std::string> unknown = GpuStep(20, 1300);
  unknown[3] = Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 20, 1142, 158, 2,
                      R"(, "Collective name": "allreduce", "In msg nelems": 7, "dtype": "Float",
                         "Process Group Name": "0")");
  EXPECT_THAT(error({one, Rank(File(1, 2, unknown, 360))}),
              HasSubstr("rank 0 has all-reduce of 2048 bytes"));
}

// 3,000 profiles with bytes changed or cut off: an answer that verifies or an error, never a crash.
TEST(PyTorchProfile, DamagedFilesEndWithAnAnswer) {
  const std::string whole = File(0, 1, GpuStep(0, 1300), 360);
  int read = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string text = whole;
    if (i % 4 == 0) {
      text.resize(Mix64(i) % text.size());
    } else {
      const char* const kBytes = "0123456789-.eE\",{}[]: x";
      for (std::uint64_t k = 0; k < 1 + i % 3; ++k) {
        text[Mix64(i * 8 + k) % text.size()] = kBytes[Mix64(i + 977 * k) % 24];
      }
    }
    Result<formats::ProfileTrace> profile = formats::ParseKineto(std::move(text), "damaged.json");
    if (!profile.ok()) continue;
    PyTorchRank rank;
    rank.path = "damaged.json";
    rank.profile = *std::move(profile);
    std::vector<PyTorchRank> ranks;
    ranks.push_back(std::move(rank));
    const Result<PyTorchImport> import = Import(std::move(ranks));
    if (!import.ok()) continue;
    ++read;
    const Status status = graph::Verify(import->graph, graph::VerifyLevel::kFull);
    EXPECT_TRUE(status.ok()) << i << ": " << status.message();
  }
  EXPECT_GT(read, 300);
}

TEST(Kineto, BrokenFilesNameTheByte) {
  const auto error = [](const std::string& text) {
    return formats::ParseKineto(text, "cut.json").status().message();
  };
  const std::string whole = File(0, 1, GpuStep(0, 1300), 360);
  EXPECT_THAT(error(whole.substr(0, whole.size() / 2)),
              HasSubstr(fmt::format("'cut.json', it ends at byte {}", whole.size() / 2)));
  EXPECT_THAT(error(whole + " {}"), HasSubstr("more behind the end"));
  EXPECT_THAT(error(R"({"other": []})"), HasSubstr("no 'traceEvents'"));
  EXPECT_THAT(error(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "x"}]})"),
              HasSubstr("'ts' of event 'a' is no number of microseconds"));
  EXPECT_THAT(
      error(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": -1}]})"),
      HasSubstr("'dur' of event 'a' is no number of microseconds: -1"));
  EXPECT_THAT(error(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e300}]})"),
              HasSubstr("no number of microseconds"));
  EXPECT_THAT(error(std::string("{\"traceEvents\": [\"\xff\"]}")), HasSubstr("byte 18"));
  EXPECT_FALSE(formats::ParseKineto("", "").ok());
}

// NaN, which some releases write, and numbers in quotes; times are exact to a nanosecond.
TEST(Kineto, ReadsWhatReleasesWrite) {
  const auto trace = formats::ParseKineto(
      R"({"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4756150795772.403,
         "dur": 0.001, "args": {"est. achieved occupancy %": NaN, "stream": "7", "device": 0,
         "correlation": "12"}}]})",
      "nan.json");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->events.size(), 1u);
  EXPECT_EQ(trace->events[0].start_ns, 4756150795772403);
  EXPECT_EQ(trace->events[0].duration_ns, 1);
  EXPECT_EQ(trace->events[0].correlation, 12);
}

TEST(ExecutionTrace, BothSchemasSayTheSame) {
  const auto newer = formats::ParseExecutionTrace(
      R"({"schema": "1.1.1-chakra.0.0.4", "pid": 5, "nodes": [{"id": 2, "name": "record_param_comms",
      "ctrl_deps": 1, "inputs": {"values": [], "shapes": [[[16]]], "types": ["GenericList[Tensor(float)]"]},
      "attrs": [{"name": "rf_id", "type": "uint64", "value": 9},
      {"name": "collective_name", "type": "string", "value": "allreduce"},
      {"name": "pg_name", "type": "string", "value": "3"}]}]})",
      "a.json");
  const auto older = formats::ParseExecutionTrace(
      R"({"schema": "1.0.3-chakra.0.0.4", "pid": 5, "nodes": [{"id": 2, "name": "record_param_comms",
      "rf_id": 9, "inputs": ["allreduce"], "input_shapes": [[[16]]],
      "input_types": ["GenericList[Tensor(float)]"], "collective_name": "allreduce", "pg_name": "3"}]})",
      "b.json");
  for (const auto* trace : {&newer, &older}) {
    ASSERT_TRUE(trace->ok()) << trace->status().message();
    EXPECT_EQ((*trace)->process, 5);
    ASSERT_EQ((*trace)->nodes.size(), 1u);
    EXPECT_EQ((*trace)->nodes[0].record, 9);
    EXPECT_EQ((*trace)->nodes[0].comm.collective, "allreduce");
    EXPECT_EQ((*trace)->nodes[0].comm.group, "3");
    EXPECT_EQ((*trace)->nodes[0].comm.elements, std::vector<std::int64_t>{16});
  }
  EXPECT_THAT(formats::ParseExecutionTrace(R"({"schema": "2.0", "nodes": []})", "c.json")
                  .status()
                  .message(),
              HasSubstr("schema '2.0'; 1.0.x and 1.1.x are read"));
}

}  // namespace
}  // namespace orrery::workload
