// What a framework does where nobody says: rules that depend on the model, the GPU or another key.
#include "orrery/job/frameworks.h"

#include <gtest/gtest.h>

#include "orrery/job/job.h"

namespace orrery::job {
namespace {

using workload::AttentionBackend;

// FlexAttention under plain PyTorch, cuDNN's kernel or none elsewhere; NeMo Automodel's models
// without experts are Hugging Face's, with flash-attn.
TEST(FrameworkDefaults, AttentionOfTheModel) {
  struct Expected {
    const char *framework, *model;
    cluster::Arch arch;
    AttentionBackend attention;
  };
  for (const Expected& e :
       {Expected{"megatron", "gpt-oss-20b", cluster::Arch::kHopper, AttentionBackend::kCudnn},
        Expected{"megatron", "gpt-oss-20b", cluster::Arch::kAmpere, AttentionBackend::kUnfused},
        Expected{"fsdp2", "gpt-oss-20b", cluster::Arch::kBlackwell, AttentionBackend::kFlash2},
        Expected{"automodel", "gpt-oss-20b", cluster::Arch::kHopper, AttentionBackend::kFlash2},
        Expected{"automodel", "qwen3-30b-a3b", cluster::Arch::kHopper, AttentionBackend::kCudnn},
        Expected{"automodel", "llama3-8b", cluster::Arch::kHopper, AttentionBackend::kFlash2}}) {
    const auto framework = FrameworkTable::BuiltIn().Find(e.framework);
    ASSERT_TRUE(framework.ok());
    EXPECT_EQ(AttentionFor((*framework)->defaults, e.arch, *workload::FindModel(e.model)),
              e.attention)
        << e.framework << ", " << e.model;
  }
}

// Megatron of 2022 adds to fp32 buffers alone, DeepSpeed converts into them: without them neither.
TEST(FrameworkDefaults, WhatFollowsFromTheTypeOfReduction) {
  const auto behaviour = [](const std::string& framework, const std::string& options) {
    const auto job = ReadJobText(
        "model: llama3-8b\ncluster: a100-80g-ib-200g\nnodes: 1\nparallel: {tp: 4}\n"
        "training: {global_batch: 8, seq_len: 4096}\nframework: " +
            framework + "\nframework_options: {" + options + "}\n",
        "job.yaml", "", {});
    EXPECT_TRUE(job.ok()) << job.status().message();
    return job->workloads.front().plan.framework;
  };
  EXPECT_TRUE(behaviour("megatron@2022.05", "").fused_weight_gradient);
  EXPECT_FALSE(behaviour("megatron@2022.05", "grad_reduce_fp32: false").fused_weight_gradient);
  EXPECT_TRUE(behaviour("megatron@2022.05", "grad_reduce_fp32: false, fused_weight_gradient: true")
                  .fused_weight_gradient);
  EXPECT_TRUE(behaviour("megatron-deepspeed", "").converted_gradients);
  EXPECT_FALSE(behaviour("megatron-deepspeed", "grad_reduce_fp32: false").converted_gradients);
}

}  // namespace
}  // namespace orrery::job
