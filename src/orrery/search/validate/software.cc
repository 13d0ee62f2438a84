#include "orrery/search/validate/software.h"

#include "orrery/base/text.h"
#include "orrery/job/attention_words.h"
#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/expert_models.h"
#include "orrery/search/validate/torch_native.h"
#include "orrery/workload/generators/layers/tp_overlap.h"
#include "orrery/workload/options.h"
#include "orrery/workload/plan_features.h"

namespace orrery::search {
namespace {

using workload::AttentionBackend;
using workload::CudaGraphs;
using workload::Plan;
using workload::Sharding;

// How far graphs reach stands in config_extra.
void MapGraphs(const Mapping& m, bool graphs, bool whole) {
  Plan& plan = m.out->plan;
  if (!graphs) {
    m.out->host = m.defaults().host;
    return;
  }
  if (plan.gathers_units()) {
    m.Assume("cuda_graphs=1: no host work beside the launch of kernels, one by one");
    return;
  }
  plan.framework.cuda_graphs = whole ? CudaGraphs::kIteration : CudaGraphs::kLayers;
  plan.framework.graph_scope = whole ? std::uint8_t{workload::kGraphAll} : GraphScope(m.row);
  m.out->host = m.defaults().host;
  m.Assume("cuda_graphs=1: {}", whole ? "the iteration is one graph"
                                      : "a graph a layer and pass of " +
                                            workload::GraphScopeText(plan.framework.graph_scope));
}

// torch.compile makes PyTorch's own loss one that works in place, as Megatron's does.
void MapLoss(const Mapping& m) {
  using job::LossDefault;
  Plan& plan = m.out->plan;
  plan.framework.chunked_loss = HasToken(m.row, "liger") && plan.parallel.tp == 1;
  LossDefault loss = m.defaults().loss;
  if (m.release.Bool("overlaps_and_fuses")) loss = LossDefault::kOnline;
  if (!m.release.Bool("fused_loss")) {
    loss = LossDefault::kEager;
    m.Assume("cross_entropy_loss_fusion off (the release's recipes)");
  }
  if (HasToken(m.row, "cross_entropy_loss_fusion")) loss = LossDefault::kFused;
  const bool compiled = SaysCompiled(m.row) && m.release.Bool("compiled_loss");
  if (loss == LossDefault::kTorch && compiled) loss = LossDefault::kEager;
  if (!plan.framework.chunked_loss) job::ApplyLoss(loss, &plan);
}

}  // namespace

void MapAttention(const Mapping& m) {
  using job::AttentionDefault;
  const cluster::Arch arch = m.out->cluster.device.arch;
  AttentionBackend* attention = &m.out->plan.framework.attention;
  const std::string_view cell = m.row.text("attention_kernel");
  // Megatron's own layers, without Transformer Engine, know no fused attention.
  const bool own_layers = OwnLayers(m.row);
  if (cell == "unfused" || (cell.empty() && own_layers)) {
    if (own_layers) m.Assume("attention_kernel=unfused (config_extra: no Transformer Engine)");
    *attention = AttentionBackend::kUnfused;
  } else if (const Option& words = *FindOption(workload::FrameworkOptions().options, "attention");
             !cell.empty() && cell != "cudnn" && IsOneOf(cell, words.choices)) {
    *attention = job::AttentionNamed(cell, m.defaults(), arch, m.out->model);
    if (const auto kernel = job::NameOf(job::kAttentions, *attention); cell == "flash") {
      m.Assume("attention_kernel={} (version not stated: {}'s)", kernel, m.rule.label);
    } else if (kernel != cell) {
      m.Assume("attention_kernel={}: {} on this GPU", cell, kernel);
    }
  } else if (cell == "cudnn") {
    *attention = job::AttentionOn(arch, AttentionDefault::kLibrary);
    if (arch < cluster::Arch::kHopper) m.Assume("cuDNN's fused attention priced as flash 2");
  } else if (!m.release.Bool("fused_attention")) {
    *attention = AttentionBackend::kFlash2;
    m.Assume("attention_kernel=flash2 (blank: the release's scripts set NVTE_FUSED_ATTN=0)");
  } else {
    if (!cell.empty()) {
      m.Assume("attention_kernel={} is not known here: taken as blank", Printable(cell, 40));
    }
    *attention = job::AttentionFor(m.defaults(), arch, m.out->model);
    if (Automodel(m) && !HasExperts(m.row)) {
      *attention = AttentionBackend::kFlash2;
      return m.Assume("attention_kernel=flash2 (blank: Hugging Face's model, flash-attn)");
    }
    if (m.out->model.sinks && (PlainTorch(m) || Automodel(m))) {
      *attention = AttentionBackend::kFlash2;
      return m.Assume("attention_kernel=flash2 (blank: FlexAttention for sinks, priced as it)");
    }
    // Megatron Bridge brought GPT-OSS with cuDNN's kernel for sinks (Transformer Engine 2.8).
    if (m.out->model.sinks && *attention != AttentionBackend::kCudnn) {
      *attention = AttentionBackend::kUnfused;
      return m.Assume("attention_kernel=unfused (blank: this fused kernel knows no sinks)");
    }
    m.AssumeDefault("attention_kernel", job::NameOf(job::kAttentions, *attention));
  }
}

Status MapOverlap(const Mapping& m) {
  Plan& plan = m.out->plan;
  const job::FrameworkDefaults& d = m.defaults();
  ORRERY_ASSIGN_OR_RETURN(const auto overlap, m.row.Flag("dp_overlap"));
  ORRERY_ASSIGN_OR_RETURN(const auto sequence, m.row.Flag("seq_parallel"));
  ORRERY_ASSIGN_OR_RETURN(auto tp_overlap, m.row.Flag("tp_comm_overlap"));
  if (!tp_overlap && AsyncTp(m)) tp_overlap = true;
  ORRERY_ASSIGN_OR_RETURN(const auto graphs, m.row.Flag("cuda_graphs"));
  // Megatron-FSDP's own default is to overlap both (megatron_fsdp/fully_shard.py).
  const bool dp_overlap = overlap.value_or(
      m.release.Bool("overlaps_and_fuses") || m.release.Bool("torch_ddp") ||
      HasToken(m.row, "megatron_fsdp") || (d.dp_overlap && !m.recipe().says_switches));
  if (!overlap && plan.parallel.dp > 1) m.AssumeDefault("dp_overlap", dp_overlap ? "1" : "0");
  plan.framework.overlap_grad_reduce = dp_overlap;
  plan.framework.overlap_param_gather = dp_overlap && plan.memory.sharding == Sharding::kZero1;
  const bool with_tp = m.recipe().sequence_parallel && plan.parallel.tp > 1;
  // Overlap of tensor-parallel communication needs it.
  const bool splits = with_tp || (tp_overlap.value_or(false) && plan.parallel.tp > 1);
  plan.parallel.sequence_parallel = sequence.value_or(splits) && plan.parallel.tp > 1;
  if (!sequence && plan.parallel.tp > 1) m.AssumeDefault("seq_parallel", splits ? "1" : "0");
  // Recipes leave it off with nvfp4.
  const bool recipe =
      d.options.tp_comm_overlap && plan.precision.low != workload::LowPrecision::kNvfp4;
  plan.framework.tp_comm_overlap = tp_overlap.value_or(recipe) && plan.parallel.sequence_parallel;
  if (!tp_overlap && plan.parallel.sequence_parallel) {
    m.AssumeDefault("tp_comm_overlap", plan.framework.tp_comm_overlap ? "1" : "0");
  }
  const bool whole = HasToken(m.row, "full_cuda_graph") || HasToken(m.row, "full_iteration") ||
                     m.release.Bool("whole_graphs") ||
                     (!graphs && m.release.Text("cuda_graphs") == "iteration");
  MapGraphs(m, graphs.value_or(m.release.Text("cuda_graphs") != "none"), whole);
  if (HasToken(m.row, "sharp")) m.Assume("config_extra=sharp is not modelled: rings and trees");
  plan.framework.quiet_loop = m.release.Bool("quiet_loop");
  if (plan.framework.quiet_loop)
    m.Assume("quiet_loop=1 (blank: the release's scripts log nothing a step)");
  plan.framework.prefetch = dp_overlap;
  plan.framework.overlap_p2p = d.options.overlap_p2p && plan.parallel.vpp > 1;
  job::ApplyReducer(d, &plan);
  return {};
}

Status MapLibraries(const Mapping& m) {
  memory::Libraries* libraries = &m.out->libraries;
  *libraries = m.defaults().libraries;
  const bool own_layers = libraries->transformer_engine && OwnLayers(m.row);
  if (own_layers) libraries->transformer_engine = false;
  libraries->deterministic = HasToken(m.row, "+deterministic");
  m.out->plan.framework.deterministic = libraries->deterministic;
  if (HasToken(m.row, "case=") && HasToken(m.row, "deterministic")) {
    m.out->plan.framework.fused_weight_gradient = false;
    m.Assume("--no-gradient-accumulation-fusion (the CI's test cases of either determinism)");
  }
  if (!m.release.Bool("fused_weight_gradient")) {
    m.out->plan.framework.fused_weight_gradient = false;
    m.Assume("weight gradients are added by kernels of their own (the release's model)");
  }
  m.out->plan.framework.keeps_scores = own_layers;
  if (HasToken(m.row, "uninstall_te")) m.out->plan.framework.fused_softmax = false;
  m.out->plan.framework.in_place_kernels = HasToken(m.row, "liger");
  MapTorchLayers(m);
  if ((m.defaults().squared_relu_operators || !m.release.Bool("fused_bias_activation")) &&
      m.out->model.activation == workload::Activation::kSquaredRelu) {
    m.out->plan.framework.fused_bias_activation = false;
    m.Assume("squared ReLU as PyTorch's operators, not compiled (NeMo 2)");
  }
  if (!m.release.Bool("stacked_layers")) m.out->plan.framework.stacked_layers = false;
  if (m.release.Bool("qkv_bias_kernel")) {
    m.out->plan.framework.qkv_bias_kernel = true;
    m.out->plan.framework.fused_bias_activation = false;
    m.Assume("biases of products are kernels of their own (XLA's cuBLAS calls)");
  }
  if (!m.release.Bool("fused_adam")) {
    m.out->plan.framework.fused_adam = false;
    m.Assume("AdamW operator by operator (torchtitan before 24 February 2025)");
  }
  MapLoss(m);
  m.out->allocator = m.recipe().allocator;
  if (!m.recipe().allocator.empty()) m.AssumeDefault("allocator", m.recipe().allocator);
  m.out->meter = m.recipe().meter;
  return {};
}

void MapUserbuffers(const Mapping& m) {
  Plan& plan = m.out->plan;
  const bool engine = m.out->libraries.transformer_engine;
  const bool layers = engine || plan.framework.torch_layers == workload::TorchLayers::kCompiled;
  if (plan.framework.tp_comm_overlap && (!layers || !CheckTpOverlap(m.out->model, plan).ok())) {
    plan.framework.tp_comm_overlap = false;
    m.Assume(
        "tp_comm_overlap=1: not with these layers, tensor-parallel communication stands alone");
  }
}

}  // namespace orrery::search
