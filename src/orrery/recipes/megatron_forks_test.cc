// Forks of Megatron-LM: what their own arguments become, beside Megatron's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "orrery/job/job.h"
#include "orrery/recipes/import.h"
#include "orrery/recipes/shell.h"

namespace orrery::recipes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Imported> ImportText(const std::string& text,
                            const Options& options = {.cluster = "h100-ib-400g"}) {
  const std::string path = testing::TempDir() + "fork.sh";
  std::ofstream(path) << text;
  return Import({path}, options);
}

const std::string kSmall =
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
    "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 2 --global-batch-size 64 --bf16 ";
const std::string kVocab = "--vocab-size 50257 ";

// Le Scao et al. 2022, section 3.4 and table 3.
TEST(MegatronDeepSpeed, BloomAsItsPaperSays) {
  const Result<Imported> imported =
      Import({std::string(ORRERY_SOURCE_DIR) + "/examples/recipes/bloom-176b.slurm"},
             {.cluster = "a100-80g-ib-200g"});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "megatron-deepspeed");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.parameters(), 176'247'271'424);  // bigscience/bloom's checkpoint
  EXPECT_EQ(imported->job.ranks(), 384u);
  EXPECT_EQ(w.plan.parallel.dp, 8);
  EXPECT_EQ(w.plan.batch.global_batch, 2048);
  EXPECT_EQ(w.plan.memory.sharding, workload::Sharding::kZero1);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  const auto layers = workload::LayersPerChunk(w.model, w.plan);
  ASSERT_TRUE(layers.ok());
  EXPECT_EQ(layers->front(), 5);
  EXPECT_EQ((*layers)[1], 6);
  EXPECT_EQ(w.model.position, workload::Position::kNone);
}

TEST(MegatronDeepSpeed, ItsJsonSaysTheStage) {
  const auto sharding = [](const std::string& text) {
    const Result<Imported> imported = ImportText(text);
    EXPECT_TRUE(imported.ok()) << imported.status().message();
    return imported.ok() ? imported->job.workloads.front().plan.memory.sharding
                         : workload::Sharding::kNone;
  };
  const std::string run = kSmall + kVocab + "--deepspeed --deepspeed_config $C --zero-stage 1";
  EXPECT_EQ(
      sharding("C=a.$X.json\nS=3\ncat <<E > $C\n{\"zero_optimization\": {\"stage\": $S}}\nE\n" +
               run),
      workload::Sharding::kZero3);
  EXPECT_EQ(sharding("C=b.json\necho '{\"zero_optimization\": {\"stage\": 2}}' > $C\n" + run),
            workload::Sharding::kZero2);
  // A template that sed fills in cannot be read: the argument holds, and the job says so.
  const Result<Imported> blind = ImportText("C=none.json\nsed s/A/1/ t.json > $C\n" + run);
  ASSERT_TRUE(blind.ok()) << blind.status().message();
  EXPECT_EQ(blind->job.workloads.front().plan.memory.sharding, workload::Sharding::kZero1);
  EXPECT_THAT(blind->job.assumed, testing::Contains(HasSubstr("none.json of")));
  const Result<Imported> open =
      ImportText("C=c.json\ncat <<E > $C\n{\"zero_optimization\": {\"stage\": $S}}\nE\n" + run);
  EXPECT_THAT(open.status().message(), HasSubstr("S is not set: give --env S=VALUE"));
}

TEST(MegatronDeepSpeed, ExpertsAndUlysses) {
  const Result<Imported> imported =
      ImportText(kSmall + kVocab +
                 "--deepspeed --num-experts 8 --moe-expert-parallel-size 4 --topk 1 "
                 "--disable-moe-token-dropping --no-pipeline-parallel");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.experts.count, 8);
  EXPECT_EQ(w.model.experts.top_k, 1);
  EXPECT_EQ(w.plan.parallel.ep, 4);
  EXPECT_THAT(imported->job_text, HasSubstr("expert_every: 2"));
  EXPECT_THAT(ImportText(kSmall + kVocab + "--deepspeed --num-experts 8 16").status().message(),
              HasSubstr("layers with different numbers of experts (8, 16) are not modelled"));
  const Result<Imported> ulysses =
      ImportText(kSmall + kVocab + "--deepspeed --ds-sequence-parallel-size 4 --use-flash-attn-v2");
  ASSERT_TRUE(ulysses.ok()) << ulysses.status().message();
  EXPECT_EQ(ulysses->job.workloads.front().plan.parallel.cp, 4);
  EXPECT_THAT(ulysses->job_text, HasSubstr("cp_exchange: all-to-all"));
}

// What a script of Pai-Megatron-Patch's is started with says its size; its tokenizer's name and
// --extra-vocab-size say the vocabulary, 151,643 + 421 = 152,064 as Qwen2.5 7B has it.
TEST(MegatronPatch, StartedWithArguments) {
  const std::string script =
      "ENV=$1\nLAYERS=$2\nTP=${3}\n" + kSmall +
      "--num-layers $LAYERS --tensor-model-parallel-size $TP --patch-tokenizer-type Qwen2Tokenizer "
      "--extra-vocab-size 421 --max-padding-length 1024 --make-vocab-size-divisible-by 64";
  const Result<Imported> open = ImportText(script);
  EXPECT_THAT(open.status().message(),
              HasSubstr("--num-layers is $2, and 2 is not set; give --args 'ONE TWO …'"));
  const Result<Imported> imported = ImportText(
      script, {.cluster = "h100-ib-400g", .variables = {{"1", "dsw"}, {"2", "24"}, {"3", "2"}}});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "megatron-patch");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.model.layers, 24);
  EXPECT_EQ(w.plan.parallel.tp, 2);
  EXPECT_EQ(w.model.vocab, 152'064);
}

// Releases of Megatron-LM until 2.6.
TEST(Megatron, OldestArguments) {
  const Result<Imported> imported = ImportText(
      "torchrun --nproc_per_node 8 pretrain_gpt2.py --num-layers 12 --hidden-size 768 "
      "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 --fp16 "
      "--model-parallel-size 2 --batch-size 4 --checkpoint-activations --checkpoint-num-layers 2 "
      "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --data-impl mmap "
      "--load <path of a checkpoint> \n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.plan.parallel.tp, 2);
  EXPECT_EQ(w.plan.batch.micro_batch, 4);
  EXPECT_EQ(w.plan.memory.recompute, workload::Recompute::kFull);
  EXPECT_EQ(w.plan.memory.recompute_layers, 2);
  EXPECT_EQ(w.model.vocab, 50'432);  // 50,257 to a multiple of 128 · 2
}

// The layers of NVIDIA's 8B hybrid as examples/mamba/README.md of Megatron-LM (d98e8a6) writes them
// out, and the shares of them that its paper (Waleffe et al. 2024, table 6) says.
TEST(Megatron, SharesOfLayersOfAHybrid) {
  const std::string hybrid =
      "torchrun --nproc_per_node 8 pretrain_mamba.py --num-layers 56 --hidden-size 4096 "
      "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 "
      "--max-position-embeddings 4096 --micro-batch-size 4 --global-batch-size 1024 --bf16 "
      "--vocab-size 256000 ";
  const Result<Imported> imported =
      ImportText(hybrid + "--hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().model.pattern,
            "M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-");
  for (const char* says :
       {"--is-hybrid-model",
        "--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec"}) {
    const Result<Imported> pure = ImportText(hybrid + says);
    ASSERT_TRUE(pure.ok()) << pure.status().message();
    EXPECT_EQ(pure->job.workloads.front().model.pattern, std::string(56, 'M'));
  }
}

// transformer_block.py: of a stage's layers the first 0 are recomputed.
TEST(Megatron, NoLayersRecomputed) {
  const Result<Imported> imported =
      ImportText(kSmall + kVocab +
                 "--recompute-granularity full --recompute-method block --recompute-num-layers 0");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.workloads.front().plan.memory.recompute, workload::Recompute::kNone);
}

TEST(Megatron, AllThatIsNotKnownIsLeftOutAtOnce) {
  const std::string script = kSmall + kVocab + "--our-own-thing 3 --another-thing";
  EXPECT_THAT(ImportText(script).status().message(),
              HasSubstr("--leave-out unknown goes on without all 2 that are not known"));
  const Result<Imported> imported =
      ImportText(script, {.cluster = "h100-ib-400g", .leave_out = {"unknown"}});
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(imported->job.assumed, testing::Contains(HasSubstr("--our-own-thing of")));
  EXPECT_THAT(imported->job.assumed, testing::Contains(HasSubstr("--another-thing of")));
}

TEST(Megatron, CapacityOfEvenlyLoadedExperts) {
  const std::string experts =
      kSmall + kVocab +
      "--num-experts 8 --moe-expert-capacity-factor 1.25 "
      "--moe-token-dispatcher-type alltoall --expert-model-parallel-size 4 ";
  const Result<Imported> drops = ImportText(experts);
  ASSERT_TRUE(drops.ok()) << drops.status().message();
  EXPECT_THAT(drops->job_text, HasSubstr("moe_routing: drawn-zipf"));
  const Result<Imported> pads = ImportText(experts + "--moe-pad-expert-input-to-capacity");
  ASSERT_TRUE(pads.ok()) << pads.status().message();
  EXPECT_THAT(pads->job_text, HasSubstr("moe_imbalance: 1.25"));
}

TEST(Shell, ScriptsThatAreTakenIn) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "taken_config.sh") << "LAYERS=24\nARGS=\"--num-layers $LAYERS\"\n";
  std::ofstream(folder + "taken_run.sh") << "start $ARGS --size $1\n";
  const Result<Script> script = ReadScript(
      ". `pwd`/taken_config.sh\nsource none.sh\nbash taken_run.sh 7B\n", folder + "x.sh", {});
  ASSERT_TRUE(script.ok()) << script.status().message();
  std::vector<std::string> words;
  for (const Word& word : script->commands.back()) words.push_back(word.text);
  EXPECT_THAT(words, ElementsAre("start", "--num-layers", "24", "--size", "7B"));
  EXPECT_THAT(script->notes, ElementsAre("line 2: 'none.sh' was not found"));
  // One that takes itself in ends.
  std::ofstream(folder + "taken_loop.sh") << "source taken_loop.sh\nrun\n";
  const Result<Script> loop = ReadScript("source taken_loop.sh\n", folder + "x.sh", {});
  ASSERT_TRUE(loop.ok());
  EXPECT_THAT(loop->notes, testing::Contains(HasSubstr("is one file too many")));
}

// As the scripts of Narayanan et al. 2021 are built: a figure's script, its settings, what it
// submits.
TEST(Megatron, SettingsAndBatchScriptsApart) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "part_settings.sh")
      << "MERGES=\nARGS=\" --tensor-model-parallel-size ${TP} --micro-batch-size 1 "
         "--global-batch-size 16 --num-layers 3 --hidden-size 1024 --num-attention-heads 16 "
         "--merge-file ${MERGES} --seq-length 2048 --max-position-embeddings 2048 --fp16 \"\n";
  std::ofstream(folder + "part_run.sh")
      << "#!/bin/bash\n#SBATCH -t 0:30:00 --exclusive --ntasks-per-node=8 # a task a GPU\n"
         "CMD=\"python -u ${CODE}/pretrain_gpt.py ${ARGS}\"\nsrun -l sh -c \"${CMD}\"\n";
  const Result<Imported> imported =
      ImportText("#!/bin/bash\nTP=8\n. `pwd`/part_settings.sh\nsbatch --nodes=2 part_run.sh\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(imported->job.workloads.front().plan.parallel.tp, 8);
  EXPECT_EQ(imported->job.workloads.front().model.layers, 3);
}

// A variable with something unknown in it is still split into words, each of which says whether it
// is known.
TEST(Shell, WordsOfAVariableThatIsNotWhollyKnown) {
  const Result<Script> script = ReadScript(
      "A=\"--x $(run it --y) --z 3\n --last\"\nstart $A \"`bc <<< \"2 * 3\"`\"\n", "x.sh", {});
  ASSERT_TRUE(script.ok()) << script.status().message();
  std::vector<std::string> words;
  for (const Word& word : script->commands.front()) {
    words.push_back(word.text + (word.unknown.empty() ? "" : "?"));
  }
  EXPECT_THAT(words, ElementsAre("start", "--x", "$(run it --y)?", "--z", "3", "--last",
                                 "`bc <<< \"2 * 3\"`?"));
}

constexpr const char* kMindSpeed =
    "#!/bin/bash\nNPUS_PER_NODE=8\nNNODES=2\n"
    "torchrun --nproc_per_node $NPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py"
    " --transformer-impl local --use-flash-attn --num-layers 16 --hidden-size 2048"
    " --ffn-hidden-size 5632 --num-attention-heads 16 --seq-length 4096"
    " --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16"
    " --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --swiglu"
    " --normalization RMSNorm --position-embedding-type rope --disable-bias-linear"
    " --padded-vocab-size 32000 --vocab-size 32000 --use-distributed-optimizer"
    " --handler-name GeneralPretrainHandler";

// Layers that do nothing are neither the model's nor their stage's; its local layers are fused.
TEST(MindSpeed, NoopLayersAndUlysses) {
  const Result<Imported> imported = ImportText(
      std::string(kMindSpeed) +
      " --noop-layers 14,15 --context-parallel-size 2 --context-parallel-algo ulysses_cp_algo\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(imported->dialect, "mindspeed");
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(imported->job.ranks(), 16u);
  EXPECT_EQ(w.model.layers, 14);
  EXPECT_EQ(w.plan.parallel.cp, 2);
  EXPECT_EQ(w.plan.parallel.dp, 2);
  EXPECT_EQ(w.plan.batch.global_batch, 64);
  EXPECT_THAT(imported->job_text, HasSubstr("layers_per_stage: [8, 6]"));
  EXPECT_THAT(imported->job_text, HasSubstr("cp_exchange: all-to-all"));
  EXPECT_THAT(imported->job_text, HasSubstr("attention: flash2"));
}

// Tensor-parallel ranks hold whole experts: 2 · 2 share them.
TEST(MindSpeed, ExpertsOverTensorParallelRanks) {
  const Result<Imported> imported = ImportText(
      std::string(kMindSpeed) +
      " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1408 --n-shared-experts 2"
      " --first-k-dense-replace 1 --expert-model-parallel-size 2 --moe-tp-extend-ep"
      " --sequence-parallel\n");
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const job::Workload& w = imported->job.workloads.front();
  EXPECT_EQ(w.plan.parallel.ep, 4);
  EXPECT_EQ(w.model.experts.shared_ffn_hidden, 2 * 1408);
  EXPECT_THAT(imported->job_text, HasSubstr("first_dense_layers: 1"));
  const Result<Imported> swaps = ImportText(std::string(kMindSpeed) + " --swap-optimizer\n");
  ASSERT_FALSE(swaps.ok());
  EXPECT_THAT(swaps.status().message(), HasSubstr("training.offload=optimizer comes near"));
}

}  // namespace
}  // namespace orrery::recipes
