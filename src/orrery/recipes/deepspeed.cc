// DeepSpeed's JSON: rules that join several keys; what one key says alone stands in
// data/recipes/deepspeed.csv. Source of defaults and meaning: deepspeedai/DeepSpeed,
// deepspeed/runtime/config.py, runtime/zero/config.py, runtime/pipe, docs/_pages/config-json.md.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orrery/base/text.h"
#include "orrery/recipes/huggingface.h"

namespace orrery::recipes {
namespace {

constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kPasses = "gradient_accumulation_steps";
constexpr std::string_view kAll = "train_batch_size";

// A value that what starts DeepSpeed fills in.
bool IsAuto(std::string_view argument, Reading* r) {
  const Given* given = r->Find(argument);
  return given != nullptr && given->values.size() == 1 && given->values[0].text == "auto";
}

std::optional<std::int64_t> WholeIfSaid(std::string_view argument, Reading* r) {
  if (r->Find(argument) == nullptr || IsAuto(argument, r)) return std::nullopt;
  return r->Whole(argument);
}

std::string Device(std::string_view argument, Reading* r) {
  const std::string device = IsAuto(argument, r) ? "" : r->Text(argument);
  return device == "none" ? "" : device;
}

void ReadOffload(std::int64_t stage, Reading* r) {
  std::string optimizer = Device("zero_optimization.offload_optimizer.device", r);
  std::string parameters = Device("zero_optimization.offload_param.device", r);
  if (r->On("zero_optimization.cpu_offload")) optimizer = "cpu";
  if (r->On("zero_optimization.cpu_offload_param") || r->On("zero_optimization.cpu_offload_params"))
    parameters = "cpu";
  const double ratio = r->Real("zero_optimization.offload_optimizer.ratio", 1);
  for (const auto& [argument, device] :
       {std::pair("zero_optimization.offload_optimizer.device", optimizer),
        std::pair("zero_optimization.offload_param.device", parameters)}) {
    if (!device.empty() && device != "cpu") {
      r->Refuse(argument,
                fmt::format("offload to '{}' is not modelled; cpu is", Printable(device, 40)));
    }
  }
  if (optimizer.empty() && parameters.empty()) return;
  if (ratio != 1) {
    r->Refuse("zero_optimization.offload_optimizer.ratio",
              "a part of the optimizer in host memory is not modelled; all of it is (ratio 1)");
  }
  if (!parameters.empty() && stage != 3) {
    return r->Refuse("zero_optimization.offload_param.device",
                     "parameters go to the host under stage 3 alone");
  }
  if (!parameters.empty() && optimizer.empty()) {
    return r->Refuse("zero_optimization.offload_param.device",
                     "parameters in host memory are modelled together with the optimizer's state "
                     "(offload_optimizer)");
  }
  if (stage == 0) {
    return r->Refuse("zero_optimization.offload_optimizer.device",
                     "the optimizer goes to the host under stages 1 to 3");
  }
  r->draft().Set("training.offload", std::string(parameters.empty() ? "optimizer" : "parameters"));
}

void ReadDeepSpeedPrecision(Reading* r) {
  Draft& draft = r->draft();
  const bool fp16 = r->On("fp16.enabled"), bf16 = r->On("bf16.enabled");
  if (fp16 && bf16) {
    r->Problem(fmt::format("{}: fp16.enabled and bf16.enabled are both true; keep one",
                           r->Where("bf16.enabled")));
  }
  const bool left = IsAuto("fp16.enabled", r) || IsAuto("bf16.enabled", r);
  if (fp16 || bf16) {
    draft.Set("training.precision", std::string(fp16 ? "fp16" : "bf16"));
  } else if (!draft.Has("training.precision")) {
    if (left && !r->IsSet("training.precision")) {
      r->Missing(
          "the precision (fp16 and bf16 are 'auto'): give the Trainer's arguments as another "
          "FILE, or --set training.precision=bf16");
    }
    draft.Set("training.precision", std::string("fp32"));
  }
  const std::string type =
      IsAuto("communication_data_type", r) ? "" : r->Text("communication_data_type");
  if (type == "fp32") draft.Set("framework_options.grad_reduce_fp32", true);
  if (type == "fp16" || type == "bf16" || type == "bfp16") {
    draft.Set("framework_options.grad_reduce_fp32", false);
  }
  if (r->Has("gradient_clipping") && !IsAuto("gradient_clipping", r) &&
      r->Real("gradient_clipping", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
}

void ReadDeepSpeedOptimizer(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = IsAuto("optimizer.type", r) ? "" : Lower(r->Text("optimizer.type"));
  const bool torch = r->On("optimizer.params.torch_adam");
  if (type.empty()) return;
  if (type == "adam" || type == "adamw" || type == "fusedadam" || type == "cpuadam" ||
      type == "deepspeedcpuadam") {
    draft.Set("training.optimizer", std::string(type == "adamw" ? "adamw" : "adam"));
    if (torch) draft.Set("framework_options.fused_adam", false);
  } else if (type == "lamb" || type == "fusedlamb") {
    draft.SetText("training.optimizer", "lamb");
  } else if (type == "muon" || type == "sgd" || type == "adafactor") {
    draft.Set("training.optimizer", type);
  } else {
    r->Refuse("optimizer.type", fmt::format("'{}' is not modelled; modelled: Adam, AdamW, Muon, "
                                            "SGD, Adafactor, Lamb",
                                            Printable(type, 40)));
  }
}

void ReadDeepSpeedParallelism(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t tp = WholeIfSaid("tensor_parallel.autotp_size", r).value_or(0);
  const std::int64_t sp = WholeIfSaid("sequence_parallel_size", r).value_or(1);
  const std::int64_t pp = WholeIfSaid("pipeline.stages", r).value_or(1);
  const std::int64_t ep = WholeIfSaid("expert_parallel.autoep_size", r).value_or(1);
  const std::string partition = r->Text("pipeline.partition");
  if (tp > 1) draft.Set("parallel.tp", tp);
  if (r->On("expert_parallel.enabled") && ep > 1) draft.Set("parallel.ep", ep);
  if (sp > 1) {
    draft.Set("parallel.cp", sp);
    draft.Set("framework_options.cp_exchange", std::string("all-to-all"));
    draft.Assume("sequence_parallel_size: Ulysses, parallel.cp with all-to-alls before attention");
  }
  if (pp > 1) {
    draft.Set("parallel.pp", pp);
    draft.SetText("framework", "megatron-deepspeed");
    if (partition != "best" && partition != "parameters" && partition != "uniform" &&
        !partition.starts_with("type:")) {
      r->Refuse("pipeline.partition", "valid: parameters, uniform, best, type:CLASS");
    }
  }
}

void ReadCheckpointing(const Sources& sources, Reading* r) {
  Draft& draft = r->draft();
  const bool parts = r->On("activation_checkpointing.partition_activations");
  const bool host = r->On("activation_checkpointing.cpu_checkpointing");
  const auto interval = WholeIfSaid("pipeline.activation_checkpoint_interval", r);
  const auto number = WholeIfSaid("activation_checkpointing.number_checkpoints", r);
  const bool buffer = r->On("activation_checkpointing.contiguous_memory_optimization");
  const bool configured = parts || host || buffer || (number && *number > 0);
  if (sources.trainer || draft.Has("training.recompute")) {
    // The Trainer says whether layers are checkpointed.
  } else if ((interval && *interval >= 1) || configured) {
    draft.Set("training.recompute", std::string("full"));
    if (interval && *interval > 1) draft.Set("training.recompute_layers", *interval);
    if (configured) {
      draft.Assume(
          "training.recompute: full, for activation_checkpointing configures checkpoints; whether "
          "the model takes them is in its code");
    }
  } else if (!r->IsSet("training.recompute")) {
    draft.Assume(
        "training.recompute: none; whether the model checkpoints activations is in its code, not "
        "in DeepSpeed's JSON");
  }
  if (parts && draft.Whole("parallel.tp", 1) > 1) {
    r->Refuse("activation_checkpointing.partition_activations",
              "checkpoints split over tensor-parallel ranks are not modelled");
  }
  if (!host) return;
  if (draft.Text("training.offload") == "parameters") {
    return r->Refuse("activation_checkpointing.cpu_checkpointing",
                     "checkpoints in host memory beside parameters there are not modelled");
  }
  draft.SetText("training.offload", draft.Has("training.offload") ? "all" : "activations");
}

}  // namespace

void ReadZero(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t stage = WholeIfSaid("zero_optimization.stage", r).value_or(0);
  if (stage < 0 || stage > 3) {
    return r->Refuse("zero_optimization.stage", "ZeRO has stages 0 to 3");
  }
  draft.Set("training.sharding", stage == 0 ? std::string("none") : fmt::format("zero{}", stage));
  const Given* overlap = r->Find("zero_optimization.overlap_comm");
  const bool overlaps =
      overlap == nullptr || IsAuto("zero_optimization.overlap_comm", r) ? stage == 3 : overlap->on;
  if (!overlaps && stage > 0) {
    draft.Set("framework_options.overlap_grad_reduce", false);
    if (stage == 3) draft.Set("framework_options.prefetch", false);
  }
  if (stage == 3 && r->Has("zero_optimization.contiguous_gradients")) {
    draft.Set("framework_options.contiguous_gradients",
              r->On("zero_optimization.contiguous_gradients"));
  }
  if (const auto bucket = WholeIfSaid("zero_optimization.reduce_bucket_size", r);
      bucket && *bucket > 0) {
    draft.Set("framework_options.bucket_elements", *bucket);
  } else if (IsAuto("zero_optimization.reduce_bucket_size", r)) {
    // The Trainer's own (transformers integrations/deepspeed.py).
    if (const auto model = r->Model()) {
      draft.Set("framework_options.bucket_elements", model->hidden * model->hidden);
    }
  }
  const std::int64_t shards = r->Whole("zero_optimization.mics_shard_size").value_or(-1);
  if (shards > 1) draft.Set("parallel.shard_group", shards);
  ReadOffload(stage, r);
  if (r->On("wall_clock_breakdown")) {
    draft.Assume(
        "wall_clock_breakdown: the timers that wait for the GPU around every pass are not priced");
  }
}

Batch DeepSpeedBatch(Reading* r) {
  return {.micro = WholeIfSaid(kMicro, r),
          .passes = WholeIfSaid(kPasses, r),
          .all = WholeIfSaid(kAll, r)};
}

// train_batch_size = micro-batch · passes · replicas: any two say the third, as DeepSpeed has it.
void SetBatch(const Sources& sources, const Batch& batch, Reading* r) {
  Draft& draft = r->draft();
  for (const auto& [name, value] : {std::pair(kMicro, batch.micro),
                                    std::pair(kPasses, batch.passes), std::pair(kAll, batch.all)}) {
    if (value && *value < 1) {
      return r->Problem(
          fmt::format("{}: {} is {}; write a whole number from 1", r->Where(name), name, *value));
    }
  }
  const bool sized = sources.launch.gpus > 0 || sources.launch.nodes > 0 ||
                     r->options().nodes > 0 || r->options().gpus > 0;
  if (batch.micro && batch.passes && batch.all && !sized) {
    if (*batch.all % (*batch.micro * *batch.passes) != 0) {
      return r->Problem(fmt::format("{}: {} {} is no multiple of {} {} · {} {}", r->Where(kAll),
                                    kAll, *batch.all, kMicro, *batch.micro, kPasses,
                                    *batch.passes));
    }
    if (!r->IsSet("parallel.dp")) {
      draft.Set("parallel.dp", *batch.all / (*batch.micro * *batch.passes));
    }
  } else {
    r->SetSize(sources.launch);
  }
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  if (dp < 1) return;  // asked for, or said by --set
  std::int64_t micro = batch.micro.value_or(0), passes = batch.passes.value_or(0);
  const std::int64_t all = batch.all.value_or(0);
  if (micro == 0 && all > 0) {
    if (passes == 0) passes = 1;
    micro = all / (passes * dp);
  } else if (micro > 0 && passes == 0) {
    passes = all > 0 ? all / (micro * dp) : 1;
  }
  if (micro == 0 && all == 0 && r->IsSet("training.global_batch")) return;
  if (micro == 0 && all == 0) {
    return r->Missing(fmt::format(
        "how many sequences a step takes: give {} or {}, the Trainer's arguments as another FILE, "
        "or --set training.global_batch=N",
        kAll, kMicro));
  }
  if (micro < 1 || passes < 1 || (all > 0 && micro * passes * dp != all)) {
    return r->Problem(fmt::format(
        "{}: {} {} is not {} {} · {} {} · {} replicas; give another --gpus, or mend the file",
        r->Where(kAll), kAll, all, kMicro, micro, kPasses, passes, dp));
  }
  draft.Set("training.micro_batch", micro);
  draft.Set("training.global_batch", micro * passes * dp);
}

void ReadDeepSpeedRules(const Sources& sources, Reading* r) {
  r->draft().SetText("framework", "deepspeed");
  ReadZero(r);
  ReadDeepSpeedPrecision(r);
  ReadDeepSpeedOptimizer(r);
  ReadDeepSpeedParallelism(r);
  ReadCheckpointing(sources, r);
}

}  // namespace orrery::recipes
