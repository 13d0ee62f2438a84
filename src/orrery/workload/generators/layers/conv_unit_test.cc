#include "orrery/workload/generators/layers/conv_unit.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Model Net(std::string_view name) {
  Result<Model> model = FindModel(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : Model{};
}

// torchvision's counts of parameters and of forward multiply-adds (weights' `num_params`, `_ops`).
TEST(ConvNet, CountsArePublished) {
  struct Row {
    std::string_view name;
    std::int64_t parameters;
    double giga_products;
  };
  for (const Row& row : {Row{"vgg-19", 143'667'240, 19.632}, Row{"resnet-50", 25'557'032, 4.089},
                         Row{"resnet-152", 60'192'808, 11.514}}) {
    const Model m = Net(row.name);
    EXPECT_EQ(m.parameters(), row.parameters);
    double products = 0;
    for (const std::uint8_t unit : m.net->order) {
      for (const ConvOp& op : m.net->units[unit].ops) {
        products += static_cast<double>(op.products());
      }
    }
    EXPECT_NEAR(products * 1e-9 / row.giga_products, 1, 0.001) << row.name;
  }
  EXPECT_EQ(Net("vgg-19").layers, 19);
  EXPECT_EQ(Net("resnet-50").layers, 18);   // stem, 16 bottlenecks, classifier
  EXPECT_EQ(Net("resnet-152").layers, 52);  // 3 + 8 + 36 + 3 bottlenecks
}

Plan Images(std::int64_t images) {
  Plan p = Ddp(4, images);
  p.batch.micro_batch = images;
  p.batch.seq_len = 1;
  p.optimizer = Optimizer::kSgd;
  return p;
}

// Forward runs the products of all units, backward twice as many but for the first convolution's
// data gradient; DistributedDataParallel sums every gradient once.
TEST(ConvNet, WorkAndGradientsOfAStep) {
  for (const std::string_view name : {"vgg-19", "resnet-50"}) {
    const Model m = Net(name);
    const graph::Graph g = Make(m, Images(2));
    EXPECT_TRUE(graph::Verify(g).ok()) << graph::Verify(g).message();
    double flops = 0;
    std::int64_t reduced = 0;
    for (const graph::Call& call : g.programs.front().calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      if (g.name(block.name).starts_with("layer.")) flops += BlockFlops(block) * call.repeat;
      if (g.name(block.name) == "gradients.reduce") {
        reduced += Bytes(block, graph::Collective::kAllReduce) * call.repeat;
      }
    }
    EXPECT_NEAR(flops / (2 * m.flops_per_sequence(1)), 1, 1e-9) << name;
    EXPECT_EQ(reduced, m.parameters() * 4) << name;
  }
}

// What forward leaves, backward frees.
TEST(ConvNet, ActivationsAreFreed) {
  const graph::Graph g = Make(Net("resnet-50"), Images(2));
  std::int64_t kept = 0, most = 0;
  for (const graph::Call& call : g.programs.front().calls) {
    kept += SavedBytes(g.blocks[call.block.index()]) * call.repeat;
    most = std::max(most, kept);
  }
  EXPECT_EQ(kept, 0);
  // torchvision's ResNet-50 keeps some 85 MB an image in fp32: the inputs of its 53 convolutions
  // and norms.
  EXPECT_NEAR(static_cast<double>(most) / 2e6, 85, 10);
}

// Stages of VGG-19 pass what the cut layer makes: 256 channels of 56 × 56 behind the eighth
// convolution without its pool.
TEST(ConvNet, PipelineMessagesAreTheBoundarys) {
  Plan p;
  p.parallel.pp = 4;
  p.batch.global_batch = 8;
  p.batch.micro_batch = 2;
  p.batch.seq_len = 1;
  p.parallel.layers_per_stage = {4, 3, 5, 7};
  const Model m = Net("vgg-19");
  const graph::Graph g = Make(m, p);
  EXPECT_TRUE(graph::Verify(g).ok()) << graph::Verify(g).message();
  std::vector<std::int64_t> sent;
  for (const graph::Program& program : g.programs) {
    std::int64_t bytes = 0;
    for (const graph::Call& call : program.calls) {
      const graph::Block& block = g.blocks[call.block.index()];
      for (const graph::Comm& comm : block.comms) {
        if (comm.collective == graph::Collective::kSend && comm.tag == 0) bytes = comm.bytes.value;
      }
    }
    sent.push_back(bytes);
  }
  // After the pools of stages 1 and 2 of the network: 128 channels of 56 x 56; 256 of 56 x 56 (the
  // third of four convolutions); 512 of 28 x 28 (the fourth convolution's pool halves it to 14).
  EXPECT_EQ(sent[0], 2 * 128 * 56 * 56 * 2);
  EXPECT_EQ(sent[1], 2 * 256 * 56 * 56 * 2);
  EXPECT_EQ(sent[2], 2 * 512 * 14 * 14 * 2);
  EXPECT_EQ(sent[3], 0);
}

TEST(ConvNet, RefusesWhatTransformersHave) {
  Plan p = Images(2);
  p.batch.seq_len = 2;
  EXPECT_THAT(Validate(Net("vgg-19"), p).message(), testing::HasSubstr("an image is one token"));
  p = Images(2);
  p.memory.recompute = Recompute::kFull;
  EXPECT_THAT(Validate(Net("vgg-19"), p).message(), testing::HasSubstr("built for transformers"));
}

}  // namespace
}  // namespace orrery::workload
