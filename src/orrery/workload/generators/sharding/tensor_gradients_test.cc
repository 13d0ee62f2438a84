#include "orrery/workload/generators/sharding/tensor_gradients.h"

#include <gmock/gmock.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::Collective;

std::vector<std::int64_t> ReducedBytes(const graph::Graph& g) {
  std::vector<std::int64_t> bytes;
  for (const graph::Call& call : g.programs.front().calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    if (g.name(block.name) != "gradients.reduce") continue;
    for (const graph::Comm& comm : block.comms) bytes.push_back(comm.bytes.value);
  }
  return bytes;
}

// Bytes of the gradients that a program makes, or gives back, call by call.
std::int64_t Passing(const graph::Graph& g, graph::OpKind kind) {
  std::int64_t sum = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    const graph::Block& block = g.blocks[call.block.index()];
    for (const graph::Op& op : block.ops) {
      if (op.kind != kind) continue;
      const graph::Buffer& buffer = block.buffers[op.index];
      const bool passes = buffer.kind == graph::MemoryKind::kGradient &&
                          buffer.lifetime == graph::Lifetime::kMicrobatch;
      if (passes) sum += buffer.bytes * call.repeat;
    }
  }
  return sum;
}

// A layer of h = 256, tensors from the last: fc2 bias 256, fc2 1024·256, fc1 bias 1024, fc1, norm
// 2·256, projection bias 256, projection 256², qkv bias 768, qkv 3·256², norm 2·256: 789,760
// elements. Final norm 512. 1 MiB is 262,144 elements: the first bucket is the final norm, fc2's
// bias and fc2 = 262,912. A bucket of 1 MB = 250,000 elements holds fc1's bias and fc1 (263,168),
// then norm to qkv (263,680 with its weight; the norm before it follows) and so on.
TEST(DistributedDataParallel, BucketsCloseAtTheirBytes) {
  Plan p = Ddp(4);
  p.framework.bucket_bytes = 1'000'000;
  const Model m = SmallGpt(1);
  const std::vector<std::int64_t> bytes = ReducedBytes(Make(m, p));
  ASSERT_GE(bytes.size(), 4u);
  EXPECT_EQ(bytes[0], 262'912 * 4);
  EXPECT_EQ(bytes[1], (1024 + 262'144) * 4);
  EXPECT_EQ(bytes[2], (512 + 256 + 65'536 + 768 + 196'608) * 4);
  std::int64_t sum = 0;
  for (const std::int64_t b : bytes) sum += b;
  // The vocabulary is padded from 1,000 to 1,024.
  EXPECT_EQ(sum, (m.parameters() + 24 * 256) * 4);
}

TEST(DistributedDataParallel, ReducesInTheLastMicrobatchBesideBackward) {
  const graph::Graph g = Make(SmallGpt(2), Ddp(4, 2));
  const graph::Graph one = Make(SmallGpt(2), Ddp(4, 1));
  EXPECT_EQ(ReducedBytes(g), ReducedBytes(one));
  // The second micro-batch adds each gradient to what the first one left.
  int adding = 0;
  for (const graph::Block& block : g.blocks) {
    if (g.name(block.name) != "layer.backward") continue;
    for (const graph::Kernel& kernel : block.kernels) {
      const auto* k = std::get_if<graph::MemoryBound>(&kernel);
      if (k != nullptr && k->bytes_read == 2 * k->bytes_written && k->rows == 1) ++adding;
    }
  }
  EXPECT_EQ(adding, 12);  // tensors of a layer
  for (const graph::Block& block : one.blocks) {
    for (const graph::Comm& comm : block.comms) EXPECT_FALSE(comm.blocking && comm.bytes.value > 8);
  }
}

TEST(DistributedDataParallel, BucketViewsSaveTheCopiesAndTheirMemory) {
  Plan p = Ddp(4);
  const auto copies = [](const graph::Graph& g) {
    std::string words;
    for (const graph::Block& block : g.blocks) words += Operations(g, block) + " ";
    return words;
  };
  const auto kept = [](const graph::Graph& g) {
    std::int64_t sum = 0;
    for (const graph::Buffer& b : FindBlock(g, "static").buffers) sum += b.bytes;
    return sum;
  };
  const graph::Graph plain = Make(SmallGpt(1), p);
  p.framework.bucket_views = true;
  const graph::Graph views = Make(SmallGpt(1), p);
  EXPECT_NE(copies(plain).find("copy_in"), std::string::npos);
  EXPECT_NE(copies(plain).find("copy_out"), std::string::npos);
  EXPECT_EQ(copies(views).find("copy_"), std::string::npos);
  const std::int64_t n = SmallGpt(1).parameters() + 24 * 256;
  EXPECT_EQ(kept(plain), n * (4 + 4 + 8));  // parameters, buckets, moments
  EXPECT_EQ(kept(views), n * (4 + 4 + 8));  // and gradients, which live in the buckets
  // Without views gradients are tensors besides, from the backward pass to behind the optimizer.
  EXPECT_EQ(Passing(plain, graph::OpKind::kAlloc), n * 4);
  EXPECT_EQ(Passing(plain, graph::OpKind::kFree), n * 4);
  EXPECT_EQ(Passing(views, graph::OpKind::kAlloc), 0);
}

// One replica need not be wrapped: no buckets, and gradients that come and go.
TEST(DistributedDataParallel, OneReplicaWithoutBuckets) {
  Plan p = Ddp(1);
  p.framework.bucket_views = true;
  const graph::Graph g = Make(SmallGpt(1), p);
  const std::int64_t n = SmallGpt(1).parameters() + 24 * 256;
  std::int64_t kept = 0;
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) kept += b.bytes;
  EXPECT_EQ(kept, n * (4 + 8));  // parameters, moments
  EXPECT_EQ(Passing(g, graph::OpKind::kAlloc), n * 4);
  EXPECT_EQ(Passing(g, graph::OpKind::kFree), n * 4);
}

// Under autocast a linear layer's weight is cast forward and its gradient back: four of each a
// layer.
TEST(DistributedDataParallel, AutocastCastsWeightsAndGradients) {
  Plan p = Ddp(4);
  p.precision.type = Precision::kBf16;
  p.framework.attention = AttentionBackend::kFlash2;
  const graph::Graph g = Make(SmallGpt(1), p);
  const std::string forward = Operations(g, FindBlock(g, "layer.forward"));
  std::size_t casts = 0;
  for (std::size_t at = 0; (at = forward.find("weight.cast", at)) != std::string::npos; ++at) {
    ++casts;
  }
  EXPECT_EQ(casts, 4u);
  EXPECT_EQ(Operations(g, FindBlock(g, "optimizer")).find("copy_to_model"), std::string::npos);
}

TEST(DistributedDataParallel, RefusesWhatItDoesNotDo) {
  Plan p = Ddp(4);
  p.memory.sharding = Sharding::kZero1;
  EXPECT_THAT(Validate(SmallGpt(1), p).message(), testing::HasSubstr("shards nothing"));
  p = Ddp(2);
  p.parallel.tp = 2;
  EXPECT_THAT(Validate(SmallGpt(1), p).message(), testing::HasSubstr("replicates the model"));
}

// DeepSpeed's ZeRO-2: every micro-batch all-reduces all gradients in 16 bits; a rank keeps 1/n of
// them and gathers all parameters after the optimizer.
TEST(DeepSpeedZero2, ReducesEachMicrobatchAndKeepsAPart) {
  Plan p;
  p.parallel.dp = 4;
  p.batch.global_batch = 12;
  p.batch.seq_len = 128;
  p.memory.sharding = Sharding::kZero2;
  p.framework.reducer = Reducer::kDeepSpeed;
  p.framework.grad_reduce_fp32 = false;
  p.framework.overlap_param_gather = false;
  p.framework.bucket_elements = 500'000;
  const Model m = SmallGpt(2);
  const graph::Graph g = Make(m, p);
  std::int64_t reduced = 0;
  for (const std::int64_t b : ReducedBytes(g)) reduced += b;
  std::int64_t gathered = 0, kept = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    gathered += Bytes(g.blocks[call.block.index()], Collective::kAllGather);
  }
  EXPECT_EQ(reduced, 3 * gathered);
  EXPECT_GE(gathered, m.parameters() * 2);
  EXPECT_LT(gathered, (m.parameters() + 24 * 256 + 40 * 128) * 2);  // vocabulary and padding
  for (const graph::Buffer& b : FindBlock(g, "static").buffers) {
    if (g.name(b.name) == "gradients") kept = b.bytes;
  }
  EXPECT_EQ(kept, gathered / 4);
  p.parallel.pp = 2;
  EXPECT_THAT(Validate(m, p).message(), testing::HasSubstr("PipelineModule"));
}

}  // namespace
}  // namespace orrery::workload
