// What programs communicate, as orrery-trace saw them, against our generator's graph of the
// same job: every kind, size, group or partner and count, and their order. What differs stands here
// with its reason, and in docs/tracing.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "orrery/formats/rank_trace.h"
#include "orrery/job/job.h"
#include "orrery/workload/generator.h"
#include "orrery/workload/importers/trace/trace.h"

namespace orrery::job {
namespace {

using graph::Graph;

const std::string kTraces = ORRERY_SOURCE_DIR "/examples/traces";

std::string Partners(const Graph& g, const graph::Comm& c, std::uint32_t rank) {
  const graph::Binding& b = g.bindings[rank];
  if (graph::IsPointToPoint(c.collective) && c.peer.kind == graph::PeerKind::kSlot) {
    return fmt::format("rank {}", b.peers[static_cast<std::size_t>(c.peer.slot())].value);
  }
  std::string text;
  std::vector<std::uint32_t> members;
  for (const RankId r : g.groups.members(g.group(b, c.group))) {
    text += fmt::format(" {}", r.value);
    members.push_back(r.value);
  }
  if (!graph::IsPointToPoint(c.collective)) return text.substr(1);
  EXPECT_EQ(c.peer.kind, graph::PeerKind::kOffset);
  const std::int64_t self = std::ranges::find(members, rank) - members.begin();
  const auto size = static_cast<std::int64_t>(members.size());
  return fmt::format("rank {}", members[static_cast<std::size_t>((self + c.peer.value) % size)]);
}

// "all-reduce 8 B fp32: 0 1", in the order in which the rank issues them.
std::vector<std::string> Communication(const Graph& g, std::uint32_t rank) {
  std::vector<std::string> out;
  const graph::Binding& b = g.bindings[rank];
  for (const graph::Call& call : g.programs[b.program.index()].calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    for (int i = 0; i < call.repeat; ++i) {
      for (const graph::Op& op : block.ops) {
        if (op.kind != graph::OpKind::kComm) continue;
        const graph::Comm& c = block.comms[op.index];
        const bool message = graph::IsPointToPoint(c.collective);
        if (graph::IsCopy(c.collective)) continue;
        if (!message && g.groups.members(g.group(b, c.group)).size() < 2) continue;
        out.push_back(fmt::format("{} {} B {}: {}", graph::Name(c.collective), c.bytes.value,
                                  graph::Name(c.dtype), Partners(g, c, rank)));
      }
    }
  }
  return out;
}

struct Pair {
  std::vector<std::string> traced, generated;
};
Pair Communications(const std::string& name, std::uint32_t rank) {
  const std::string folder = kTraces + "/" + name;
  const auto directory = formats::ReadTraceDirectory(folder, 1 << 26);
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  const auto import = workload::ImportRankTraces(*directory, name);
  EXPECT_TRUE(import.ok()) << import.status().message();
  const auto job = ReadJob(folder + "/job.yaml", {});
  EXPECT_TRUE(job.ok()) << job.status().message();
  Graph generated;
  const Workload& workload = job->workloads[0];
  EXPECT_TRUE(workload::Generator().AddJob(workload.model, workload.plan, name, &generated).ok());
  return {Communication(import->graph, rank), Communication(generated, rank)};
}

struct Difference {
  const char* what;
  int traced, generated;
};
// Counts are equal but for `differences`; takes these out of both.
void ExpectEqualBut(const std::vector<Difference>& differences, Pair* pair) {
  std::map<std::string, std::pair<int, int>> counts;
  for (const std::string& c : pair->traced) ++counts[c].first;
  for (const std::string& c : pair->generated) ++counts[c].second;
  for (const Difference& d : differences) {
    EXPECT_EQ(counts[d.what], std::pair(d.traced, d.generated)) << d.what;
    counts.erase(d.what);
    std::erase(pair->traced, d.what);
    std::erase(pair->generated, d.what);
  }
  for (const auto& [what, count] : counts) EXPECT_EQ(count.first, count.second) << what;
}

// Megatron-Core 0.16, TP2 PP2 DP2, sequence parallel, distributed optimizer: nothing differs but
// that Megatron-LM's training loop averages the loss over replicas on the last stage, which the
// traced script leaves out.
TEST(TraceAgainstGenerator, MegatronCore) {
  Pair first = Communications("megatron", 0);
  ExpectEqualBut({}, &first);
  EXPECT_EQ(first.traced, first.generated);
  EXPECT_EQ(first.traced.size(), 100U);

  Pair last = Communications("megatron", 4);
  ExpectEqualBut({{"all-reduce 8 B fp32: 4 6", 0, 1}}, &last);
  EXPECT_EQ(last.traced, last.generated);
}

// The same with two chunks a rank, sends overlapped.
TEST(TraceAgainstGenerator, MegatronCoreInterleaved) {
  Pair first = Communications("megatron-interleaved", 0);
  ExpectEqualBut({}, &first);
  EXPECT_EQ(first.traced, first.generated);
  EXPECT_EQ(first.traced.size(), 118U);

  Pair last = Communications("megatron-interleaved", 4);
  ExpectEqualBut({{"all-reduce 8 B fp32: 4 6", 0, 1}}, &last);
  EXPECT_EQ(last.traced, last.generated);
}

// Two ranks share a sequence: keys and values of attention go round, their gradients behind them;
// gradients are reduced, and the optimizer sharded, over both. The loss is left out as above.
TEST(TraceAgainstGenerator, MegatronCoreContextParallel) {
  const std::vector<Difference> last = {{"all-reduce 8 B fp32: 4 6", 0, 1}};
  for (const std::uint32_t rank : {0U, 2U, 4U, 6U}) {
    Pair pair = Communications("megatron-context", rank);
    ExpectEqualBut(rank < 4 ? std::vector<Difference>{} : last, &pair);
    EXPECT_EQ(pair.traced, pair.generated) << rank;
  }
}

// FSDP2: clipping stacks the norms of 21 tensors and reduces them in bf16; we reduce one number,
// and average the loss, as training loops do.
TEST(TraceAgainstGenerator, Fsdp2) {
  Pair pair = Communications("fsdp2", 0);
  ExpectEqualBut({{"all-reduce 42 B bf16: 0 1 2 3 4 5 6 7", 1, 0},
                  {"all-reduce 4 B fp32: 0 1 2 3 4 5 6 7", 0, 1},
                  {"all-reduce 8 B fp32: 0 1 2 3 4 5 6 7", 0, 1}},
                 &pair);
  EXPECT_EQ(pair.traced, pair.generated);
}

// torch.distributed.pipelining, 1F1B: nothing differs.
TEST(TraceAgainstGenerator, Pipeline) {
  for (const std::uint32_t rank : {0U, 1U}) {
    Pair pair = Communications("pipeline", rank);
    ExpectEqualBut({}, &pair);
    EXPECT_EQ(pair.traced, pair.generated);
    EXPECT_EQ(pair.traced.size(), 16U);
  }
}

// DDP: a Llama whose q, k and v, and w1 and w3, are parameters of their own closes buckets of 1 MB
// elsewhere than one where they are fused, as we take them to be. Bytes and number of buckets
// agree.
TEST(TraceAgainstGenerator, Ddp) {
  Pair pair = Communications("ddp", 0);
  const auto of = [](const std::vector<std::string>& all) {
    std::pair<std::size_t, long> sum{0, 0};
    for (const std::string& c : all) {
      EXPECT_EQ(c.substr(0, 10), "all-reduce");
      EXPECT_NE(c.find("fp32: 0 1 2 3 4 5 6 7"), std::string::npos);
      const long bytes = std::stol(c.substr(11));
      if (bytes > 8) ++sum.first, sum.second += bytes;  // 8: the loss, averaged
    }
    return sum;
  };
  EXPECT_EQ(of(pair.traced), std::pair(std::size_t{7}, 8426496L));
  EXPECT_EQ(of(pair.generated), std::pair(std::size_t{6}, 8426496L));
  EXPECT_EQ(pair.traced.front(), pair.generated.front());
}

// FSDP1, two micro-batches: our vocabulary is padded to a multiple of 128, 64 rows more in the root
// unit, and the script does not average the loss.
TEST(TraceAgainstGenerator, Fsdp1) {
  Pair pair = Communications("fsdp1", 0);
  EXPECT_EQ(pair.traced.size(), 17U);
  ExpectEqualBut({{"all-gather 25788928 B bf16: 0 1 2 3 4 5 6 7", 2, 0},
                  {"all-gather 25821696 B bf16: 0 1 2 3 4 5 6 7", 0, 2},
                  {"reduce-scatter 25788928 B bf16: 0 1 2 3 4 5 6 7", 2, 0},
                  {"reduce-scatter 25821696 B bf16: 0 1 2 3 4 5 6 7", 0, 2},
                  {"all-reduce 8 B fp32: 0 1 2 3 4 5 6 7", 0, 1}},
                 &pair);
  EXPECT_EQ(pair.traced, pair.generated);
}

// DeepSpeed's ZeRO-1 and -2, two micro-batches: ranks vote on overflow (a byte), and the engine
// leaves averaging the loss to the script.
TEST(TraceAgainstGenerator, DeepSpeed) {
  for (const auto& [name, calls] : {std::pair("deepspeed-zero1", 2), {"deepspeed-zero2", 3}}) {
    Pair pair = Communications(name, 0);
    ExpectEqualBut({{"all-reduce 1 B fp32: 0 1 2 3", 1, 0}, {"all-reduce 8 B fp32: 0 1 2 3", 0, 1}},
                   &pair);
    EXPECT_EQ(pair.traced, pair.generated) << name;
    EXPECT_EQ(pair.traced.size(), static_cast<std::size_t>(calls) + 1) << name;
  }
}

// ZeRO-3: a model below DeepSpeed's prefetch and live-parameter limits is gathered once a
// micro-batch and scattered in one bucket; we gather and scatter by layers, and gather layers again
// for the backward pass.
TEST(TraceAgainstGenerator, DeepSpeedZero3) {
  const Pair pair = Communications("deepspeed-zero3", 0);
  const auto bytes = [](const std::vector<std::string>& all, std::string_view kind) {
    long sum = 0;
    for (const std::string& c : all) {
      if (c.starts_with(kind)) sum += std::stol(c.substr(kind.size()));
    }
    return sum;
  };
  constexpr long kModel = 3951104, kLayer = 1451008;
  EXPECT_EQ(bytes(pair.traced, "reduce-scatter"), 2 * kModel);
  EXPECT_EQ(bytes(pair.generated, "reduce-scatter"), 2 * kModel);
  EXPECT_EQ(bytes(pair.traced, "all-gather"), 2 * kModel);
  EXPECT_EQ(bytes(pair.generated, "all-gather"), 2 * (kModel + 2 * kLayer));
}

// DTensor's tensor parallelism against Megatron's. A layer reduces 2 activations forward in both;
// backward DTensor reduces once for each of q, k, v, w1 and w3 (Megatron: 2), and once for the
// head. It gathers the logits where Megatron computes the loss by shards, and the script does not
// clip.
TEST(TraceAgainstGenerator, TensorParallel) {
  Pair pair = Communications("tp", 0);
  ExpectEqualBut({{"all-reduce 65536 B bf16: 0 1 2 3 4 5 6 7", 1 + 7 * 2 + 1, 1 + 4 * 2 + 1},
                  {"all-gather 262144 B bf16: 0 1 2 3 4 5 6 7", 1, 0},
                  {"all-reduce 512 B fp32: 0 1 2 3 4 5 6 7", 0, 3},
                  {"all-reduce 4 B fp32: 0 1 2 3 4 5 6 7", 0, 1}},
                 &pair);
}

// torchtitan 0.3.0, TP2 with sequence parallelism, FSDP2 over 4. It shards embedding, and norm with
// head, as units of their own, which it gathers again; recomputes the gathers of activations (2 a
// layer); takes the loss in eight pieces; reduces the gradients of 13 norms over tp; clips by the
// norms of 45 tensors; and counts tokens and averages the loss over replicas.
TEST(TraceAgainstGenerator, Torchtitan) {
  Pair pair = Communications("torchtitan", 0);
  ExpectEqualBut({{"all-gather 524288 B bf16: 0 2 4 6", 2, 0},
                  {"all-gather 524800 B bf16: 0 2 4 6", 3, 0},
                  {"all-gather 1049088 B bf16: 0 2 4 6", 0, 1},
                  {"reduce-scatter 1048576 B fp32: 0 2 4 6", 2, 0},
                  {"reduce-scatter 1024 B fp32: 0 2 4 6", 1, 0},
                  {"reduce-scatter 2098176 B fp32: 0 2 4 6", 0, 1},
                  {"all-gather 8388608 B bf16: 0 1", 26 + 2 * 6, 26},
                  {"all-reduce 8192 B fp32: 0 1", 3 * 8, 0},
                  {"all-reduce 65536 B fp32: 0 1", 0, 3},
                  {"all-reduce 512 B bf16: 0 1", 13, 0},
                  {"all-reduce 180 B fp32: 0 1", 1, 0},
                  {"all-reduce 180 B fp32: 0 2 4 6", 1, 0},
                  {"all-reduce 8 B int64: 0 2 4 6", 2, 0},
                  {"all-reduce 4 B fp32: 0 2 4 6", 2, 0},
                  {"all-reduce 4 B fp32: 0 1 2 3 4 5 6 7", 0, 1},
                  {"all-reduce 8 B fp32: 0 2 4 6", 0, 1}},
                 &pair);
  EXPECT_EQ(pair.traced.size(), 12U + 6U + 26U);  // what is left, equal
}

}  // namespace
}  // namespace orrery::job
