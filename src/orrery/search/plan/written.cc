#include "orrery/search/plan/written.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "orrery/formats/section.h"
#include "orrery/workload/plan.h"
#include "orrery/workload/plan_features.h"

namespace orrery::search {
namespace {

using formats::Node;
using workload::Plan;

// Plain where YAML reads it back as the same text, else in quotes.
std::string Scalar(const Node& node) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./%@+-";
  const std::string& text = node.text;
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos &&
                     text.front() != '-' && text.front() != '%' && text.front() != '@';
  if (plain && !node.quoted) return text;
  if (!node.quoted && !text.empty() && text.front() == '-' && text.size() > 1 &&
      text.find_first_not_of("0123456789.", 1) == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string Flow(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "null";
    case Node::Kind::kScalar:
      return Scalar(node);
    case Node::Kind::kList: {
      std::string out;
      for (const Node& item : node.items) {
        out += fmt::format("{}{}", out.empty() ? "" : ", ", Flow(item));
      }
      return "[" + out + "]";
    }
    case Node::Kind::kMap:
      break;
  }
  std::string out;
  for (const formats::Field& field : node.fields) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", field.key, Flow(field.value));
  }
  return "{" + out + "}";
}

void Block(const Node& node, int depth, std::string* out) {
  for (const formats::Field& field : node.fields) {
    if (field.value.kind == Node::Kind::kNull) continue;  // left out
    *out += fmt::format("{:{}}{}:", "", depth * 2, field.key);
    if (field.value.kind == Node::Kind::kMap && !field.value.fields.empty()) {
      *out += "\n";
      Block(field.value, depth + 1, out);
    } else {
      *out += fmt::format(" {}\n", Flow(field.value));
    }
  }
}

class Arguments {
 public:
  explicit Arguments(std::string name) : out_(std::move(name) + "=(\n") {}
  void Add(std::string_view option) { out_ += fmt::format("    --{}\n", option); }
  template <class T>
  void Add(std::string_view option, const T& value) {
    out_ += fmt::format("    --{} {}\n", option, value);
  }
  std::string Take() && { return out_ + ")\n"; }

 private:
  std::string out_;
};

std::string ParallelArguments(const job::Workload& w) {
  const Plan& plan = w.plan;
  Arguments args("MODEL_PARALLEL_ARGS");
  args.Add("tensor-model-parallel-size", plan.parallel.tp);
  args.Add("pipeline-model-parallel-size", plan.parallel.pp);
  if (plan.parallel.vpp > 1) args.Add("num-virtual-stages-per-pipeline-rank", plan.parallel.vpp);
  if (plan.parallel.vpp > 1 && plan.parallel.microbatch_group > 0) {
    args.Add("microbatch-group-size-per-virtual-pipeline-stage", plan.parallel.microbatch_group);
  }
  if (plan.parallel.cp > 1) args.Add("context-parallel-size", plan.parallel.cp);
  if (plan.parallel.sequence_parallel && plan.parallel.tp > 1) args.Add("sequence-parallel");
  if (w.model.experts.count > 0) {
    args.Add("expert-model-parallel-size", plan.parallel.ep);
    args.Add("expert-tensor-parallel-size", plan.expert_tp());
    args.Add("moe-token-dispatcher-type",
             plan.experts.dispatcher == workload::Dispatcher::kAllGather  ? "allgather"
             : plan.experts.dispatcher == workload::Dispatcher::kAllToAll ? "alltoall"
                                                                          : "flex");
  }
  if (plan.framework.tp_comm_overlap && plan.parallel.tp > 1) args.Add("tp-comm-overlap");
  if (plan.framework.overlap_p2p_warmup_flush) args.Add("overlap-p2p-communication-warmup-flush");
  if (plan.memory.sharding == workload::Sharding::kZero1) {
    args.Add("use-distributed-optimizer");
    if (plan.framework.overlap_grad_reduce) args.Add("overlap-grad-reduce");
    if (plan.framework.overlap_grad_reduce && plan.framework.overlap_param_gather)
      args.Add("overlap-param-gather");
  } else if (plan.framework.overlap_grad_reduce && plan.replicas() > 1) {
    args.Add("overlap-grad-reduce");
  }
  if (plan.parallel.rank_order == workload::RankOrder::kPpDp) args.Add("use-tp-pp-dp-mapping");
  return std::move(args).Take();
}

std::string TrainingArguments(const Plan& plan) {
  Arguments args("TRAINING_ARGS");
  args.Add("micro-batch-size", plan.batch.micro_batch);
  args.Add("global-batch-size", plan.batch.global_batch);
  args.Add("seq-length", plan.batch.seq_len);
  if (plan.precision.type == workload::Precision::kBf16) args.Add("bf16");
  if (plan.precision.type == workload::Precision::kFp16) args.Add("fp16");
  using workload::LowPrecision;
  if (plan.precision.low == LowPrecision::kMxfp8) {
    args.Add("fp8-format", "hybrid");
    args.Add("fp8-recipe", "mxfp8");
  } else if (plan.precision.low != LowPrecision::kNone &&
             plan.precision.low != LowPrecision::kNvfp4) {
    args.Add("fp8-format", "hybrid");
  }
  if (plan.memory.recompute == workload::Recompute::kSelective) {
    args.Add("recompute-granularity", "selective");
    if (plan.memory.recompute_modules != workload::kRecomputeCore) {
      std::string modules = workload::RecomputeModulesText(plan.memory.recompute_modules);
      std::replace(modules.begin(), modules.end(), '+', ' ');
      args.Add("recompute-modules", modules);
    }
  } else if (plan.memory.recompute == workload::Recompute::kFull) {
    args.Add("recompute-granularity", "full");
    const bool block = plan.memory.recompute_method == workload::RecomputeMethod::kBlock;
    args.Add("recompute-method", block ? "block" : "uniform");
    args.Add("recompute-num-layers",
             plan.memory.recompute_method == workload::RecomputeMethod::kEvery
                 ? 1
                 : plan.memory.recompute_layers);
  }
  if (plan.memory.offload_optimizer) args.Add("optimizer-cpu-offload");
  if (plan.memory.offload_layers > 0) {
    args.Add("cpu-offloading-num-layers", plan.memory.offload_layers);
  } else if (plan.memory.offload_modules != 0) {
    std::string modules = workload::OffloadModulesText(plan.memory.offload_modules);
    std::replace(modules.begin(), modules.end(), '+', ' ');
    args.Add("fine-grained-activation-offloading");
    args.Add("offload-modules", modules);
  }
  return std::move(args).Take();
}

// What the plan has and Megatron-LM's arguments have not.
std::vector<std::string> Unsaid(const Plan& plan) {
  std::vector<std::string> notes;
  using workload::Schedule;
  if (plan.parallel.schedule != Schedule::k1f1b &&
      plan.parallel.schedule != Schedule::k1f1bInterleaved) {
    notes.push_back(
        fmt::format("schedule {}",
                    workload::Schedules()[static_cast<std::size_t>(plan.parallel.schedule)].name));
  }
  if (plan.memory.sharding >= workload::Sharding::kZero2) {
    notes.emplace_back("zero2 and zero3: see --use-megatron-fsdp of your version");
  }
  if (!plan.parallel.layers_per_stage.empty()) {
    notes.emplace_back("layers_per_stage: see --pipeline-model-parallel-layout of your version");
  }
  if (plan.memory.offload_activations && plan.memory.offload_layers == 0 &&
      plan.memory.offload_modules == 0) {
    notes.emplace_back("activations of all layers in host memory");
  }
  if (plan.recomputes_in_parts() &&
      plan.memory.recompute_method == workload::RecomputeMethod::kEvery) {
    notes.push_back(fmt::format("recompute of one layer in {}", plan.memory.recompute_layers));
  }
  return notes;
}

}  // namespace

Result<std::string> JobFileOf(const OpenJob& open, std::uint64_t point) {
  formats::Document document = open.job.document;
  for (const std::string& assignment : open.space.Assignments(point)) {
    ORRERY_RETURN_IF_ERROR(formats::ApplySet(assignment, &document));
  }
  std::string text;
  Block(document.root, 0, &text);
  return text;
}

Result<std::string> MegatronArguments(const OpenJob& open, std::uint64_t point) {
  const Evaluator evaluator(open.job);
  const std::vector<std::string> assignments = open.space.Assignments(point);
  ORRERY_ASSIGN_OR_RETURN(const job::Job job, evaluator.Read(assignments, false));
  const job::Workload& w = job.workloads.front();
  std::string text = fmt::format(
      "# Arguments of Megatron-LM that this plan decides; {} GPUs, data parallelism {} follows.\n",
      w.plan.ranks(), w.plan.parallel.dp);
  if (!w.framework.starts_with("megatron")) {
    text += fmt::format("# The plan was simulated as {} runs it.\n", w.framework);
  }
  for (const std::string& note : Unsaid(w.plan)) {
    text += fmt::format("# Not among these arguments: {}.\n", note);
  }
  return text + ParallelArguments(w) + TrainingArguments(w.plan);
}

}  // namespace orrery::search
