// A user's own tables: rows beside the built-in ones, nothing compiled.
#include "orrery/job/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "orrery/job/describe.h"
#include "orrery/job/inspect.h"
#include "orrery/job/test_support.h"

namespace orrery::job {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class DataFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "data_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string ReadError() { return ReadData(BuiltInData(), folder_).status().message(); }
  ReadOptions WithData() {
    ReadOptions options;
    Result<std::shared_ptr<const Data>> data = ReadData(BuiltInData(), folder_);
    EXPECT_TRUE(data.ok()) << data.status().message();
    if (data.ok()) options.data = *data;
    return options;
  }

  std::string folder_;
};

TEST_F(DataFolder, AddsAGpuAClusterAndAModel) {
  Write("devices.yaml", "X1: {like: H100-SXM5-80GB, fp16: 1978.8TFLOP/s, source: a guess}\n");
  Write("clusters.yaml",
        "x1-ib-400g: {like: [_h100, _ib], device: X1, nic_bandwidth: 400Gb/s, source: a guess}\n");
  Write("models.yaml", "tall-gpt: {like: gpt2, layers: 24, source: a guess}\n");
  const std::string text = R"(
model: tall-gpt
cluster: x1-ib-400g
nodes: 1
parallel: {tp: 2, pp: 2, dp: 2}
training: {global_batch: 16, seq_len: 1024}
)";
  const Job job = Read(text, WithData());
  EXPECT_EQ(job.workloads.front().model.layers, 24);
  EXPECT_EQ(job.workloads.front().model.hidden, 768);  // GPT-2's
  EXPECT_EQ(job.cluster.device.name, "X1");
  EXPECT_EQ(job.cluster.device.fp16_flops, 1978.8e12);
  EXPECT_EQ(job.cluster.device.sms, 132);  // H100's
  const results::RunResult result = Predict(job);
  EXPECT_GT(result.jobs.front().step_time, 0);
  // The job's own key says the same, and so does what is saved with the result.
  const Job by_key = Read(text + "data: " + folder_ + "\n");
  EXPECT_EQ(by_key.config_json, job.config_json);
  EXPECT_EQ(by_key.config_hash, job.config_hash);
  const Job again = Read(job.config_json);
  EXPECT_EQ(again.config_hash, job.config_hash);
  EXPECT_EQ(Predict(again).simulation.fingerprint, result.simulation.fingerprint);
  // What a table holds is part of the hash.
  Write("models.yaml", "tall-gpt: {like: gpt2, layers: 24, source: another guess}\n");
  EXPECT_NE(Read(text, WithData()).config_hash, job.config_hash);
}

// A release of NCCL of one's own: like 2.30, but rings step over the network in no time.
TEST_F(DataFolder, AddsAReleaseOfNccl) {
  Write("nccl.yaml",
        "2.40: {like: 2.30, net: {tree: [99, 99, 99], ring: [0, 0, 0]}, source: our own}\n");
  const std::string text = R"(
model: gpt2
cluster: h100-ib-400g
nodes: 4
parallel: {dp: 32}
training: {global_batch: 32, seq_len: 1024}
nccl: {NCCL_VERSION: 2.40.1}
)";
  const Job own = Read(text, WithData()), built_in = Read(text);
  EXPECT_THAT(own.assumed, Not(Contains(HasSubstr("later than the tables"))));
  EXPECT_THAT(built_in.assumed,
              Contains("nccl.NCCL_VERSION: later than the tables, those of 2.30 stand for it"));
  EXPECT_NE(MachineText(own), MachineText(built_in));
  EXPECT_NE(Predict(own).simulation.fingerprint, Predict(built_in).simulation.fingerprint);
  Write("nccl.yaml", "2.40: {like: 2.30, rings_as_nvlss: true, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("'rings_as_nvls'"));
  Write("nccl.yaml", "2.40: {like: 2.30, blackwell: {ring_ll128: [40, 40]}, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("ring_ll128 takes 3 numbers, not 2"));
  Write("nccl.yaml", "2.40: {ll_share: 0.5, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("nccl.yaml:1: lacks base"));
  Write("nccl.yaml", "2.30.0: {like: 2.30, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("the release '2.30.0' is there already, as '2.30'"));
  Write("nccl.yaml", "newest: {like: 2.30, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("'newest' is no release"));
}

// A row that is like another does not answer to its other names.
TEST_F(DataFolder, LikeDoesNotTakeAliases) {
  Write("frameworks.yaml", "aaa@1: {like: fsdp2@torch2.6, source: our own}\n");
  const auto data = ReadData(BuiltInData(), folder_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_TRUE((*(*data)->frameworks.Find("aaa"))->aliases.empty());
  EXPECT_EQ((*(*data)->frameworks.Find("fsdp"))->name, "fsdp2@torch2.6");
}

// A model family of one's own: a row for its model_type, a row for a key without effect.
TEST_F(DataFolder, AFamilyOfOnesOwn) {
  Write("families.yaml", "ours: {like: llama, layers: $depth, source: our own modelling file}\n");
  Write("config_keys.yaml", "mood: {effect: none, why: of prompts, source: our own}\n");
  const std::string config = R"({"model_type": "ours", "depth": 2, "hidden_size": 256, "mood": 1,
      "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000, "tempo": 2})";
  std::ofstream(folder_ + "/config.json") << config;
  const Job job = Read("model: " + folder_ + R"(/config.json
cluster: h100-ib-400g
nodes: 1
parallel: {tp: 2, dp: 4}
training: {global_batch: 16, seq_len: 1024}
)",
                       WithData());
  EXPECT_EQ(job.workloads.front().model.layers, 2);
  EXPECT_THAT(job.assumed, testing::Contains(HasSubstr("tempo is ignored")));
  EXPECT_THAT(job.assumed, testing::Not(testing::Contains(HasSubstr("mood"))));
  // `inspect` knows it, too.
  const Result<Facts> facts = ModelFacts(folder_ + "/config.json", WithData().data);
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->at(2).second.substr(0, 8), "2 layers");
  EXPECT_FALSE(ModelFacts(folder_ + "/config.json", nullptr).ok());
  Write("families.yaml", "ours: {like: llama, layers: $depth of, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("the family 'ours': layers: 'of' is not understood"));
  Write("families.yaml", "ours: {like: llama, depth: $depth, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("the family 'ours': depth: unknown key 'depth'"));
}

// A version of a framework: what it does otherwise than the row that it is like. The family's name
// alone means it, since it is the newest.
TEST_F(DataFolder, AFrameworkOfOnesOwn) {
  Write("frameworks.yaml", R"(
megatron@2027.01:
  like: megatron@2026.08
  source: our fork
  framework_options: {fused_adam: false, adam_loop: true, bucket_elements: 5000000}
  defaults: {attention: flash2}
)");
  const std::string text = std::string(kSmall) + "framework: megatron\n";
  const Job job = Read(text, WithData());
  EXPECT_EQ(job.workloads.front().framework, "megatron@2027.01");
  const workload::FrameworkBehaviour& does = job.workloads.front().plan.framework;
  EXPECT_TRUE(does.adam_loop && !does.fused_adam);
  EXPECT_EQ(does.bucket_elements, 5'000'000);
  EXPECT_EQ(does.attention, workload::AttentionBackend::kFlash2);
  EXPECT_TRUE(does.batch_p2p_sync);  // megatron@2026.08's
  EXPECT_EQ(Read(text).workloads.front().framework, "megatron@2026.08");
  // What a job says comes last.
  ReadOptions said = WithData();
  said.set = {"framework_options.adam_loop=false", "framework_options.attention=cudnn"};
  const Job by_job = Read(text, said);
  EXPECT_FALSE(by_job.workloads.front().plan.framework.adam_loop);
  EXPECT_EQ(by_job.workloads.front().plan.framework.attention, workload::AttentionBackend::kCudnn);
  EXPECT_EQ(Read(job.config_json).config_hash, job.config_hash);

  Write("frameworks.yaml", "m@1: {framework_options: {attention: flash2}, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("a framework's row does not say this for every plan"));
  Write("frameworks.yaml", "m@1: {defaults: {atention: flash2}, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("did you mean 'attention'?"));
  Write("frameworks.yaml", "m@1: {framework_options: {fused_adam: perhaps}, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("frameworks.yaml:1:"));
}

TEST_F(DataFolder, SaysWhatIsWrong) {
  EXPECT_THAT(ReadError(), HasSubstr("holds no table; valid: devices.yaml, clusters.yaml"));
  Write("device.yaml", "");
  EXPECT_THAT(ReadError(), HasSubstr("unknown table 'device.yaml'; did you mean 'devices.yaml'?"));
  std::filesystem::remove(folder_ + "/device.yaml");
  Write("devices.yaml", "X1: {like: H100-SXM5-80GB, fp16: 3 GB, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("devices.yaml:1:34: cluster.device.fp16: "));
  Write("devices.yaml", "X1: {arch: hopper, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("the device 'X1' lacks sms"));
  Write("devices.yaml", "H100-SXM5-80GB: {sms: 1, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("is a row already (data/devices.yaml:"));
  std::filesystem::remove(folder_ + "/devices.yaml");
  Write("models.yaml", "m: {like: gpt2, layer: 3, source: s}\n");
  EXPECT_THAT(ReadError(), HasSubstr("unknown key of model 'layer'; did you mean 'layers'"));
  EXPECT_THAT(ReadData(BuiltInData(), folder_ + "/none").status().message(),
              HasSubstr("No such file or directory; name a folder with tables"));
}

TEST(Data, ADeviceByItsName) {
  const Job job = Read(std::string(kSmall), {.set = {"cluster.device=H200-SXM5-141GB"}});
  EXPECT_EQ(job.cluster.device.name, "H200-SXM5-141GB");
  EXPECT_EQ(job.cluster.nic_Bps, 50'000'000'000);  // of h100-ib-400g
  const Job changed =
      Read(std::string(kSmall),
           {.set = {"cluster.device.preset=H200-SXM5-141GB", "cluster.device.power=600"}});
  EXPECT_EQ(changed.cluster.device.name, "H200-SXM5-141GB");
  EXPECT_EQ(changed.cluster.device.power_w, 600);
  EXPECT_THAT(Error(kSmall, {.set = {"cluster.device=H201-SXM5-141GB"}}),
              HasSubstr("unknown device 'H201-SXM5-141GB'; did you mean 'H200-SXM5-141GB'"));
}

}  // namespace
}  // namespace orrery::job
