#include "orrery/search/validate/parallelism.h"

#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/expert_models.h"
#include "orrery/search/validate/torch_native.h"

namespace orrery::search {
namespace {

// Chunks a stage where vpp is blank: as few as interleaving takes where a run says no more than
// that it interleaved, one a layer where the framework's recipes do, else one.
void AssumeChunks(const Mapping& m) {
  const std::int64_t layers = m.out->model.layers, pp = m.pp();
  const bool fits = layers % pp == 0 && m.microbatches() % pp == 0;
  const std::int64_t a_stage = fits ? layers / pp : 1;
  if (HasToken(m.row, "interleaved_if_possible")) {
    // Megatron interleaves over more than two stages unless sends overlap.
    std::int64_t vpp = 1;
    while (pp > 2 && vpp < a_stage && (vpp == 1 || a_stage % vpp != 0)) ++vpp;
    m.job().Set("parallel.vpp", vpp);
    m.Assume("vpp={} (config_extra=interleaved_if_possible, degree not stated)", vpp);
  } else if (m.recipe().interleaved) {
    m.Fill("vpp", "parallel.vpp", a_stage);
  }
}

void SetStages(const Mapping& m, const std::vector<int>& layers) {
  m.job().Set("parallel.layers_per_stage", std::span<const int>(layers));
}

// Uneven stages, not stated: the ends, which have embedding and loss besides, have as many layers
// fewer as lets the middle share the rest evenly (--decoder-first-pipeline-num-layers, -last-).
void SpareEnds(const Mapping& m) {
  const std::int64_t layers = m.out->model.layers, pp = m.pp();
  for (std::int64_t end = layers / pp - 1; pp > 2 && m.vpp() == 1 && end > 0; --end) {
    if ((layers - 2 * end) % (pp - 2) != 0) continue;
    const auto middle = static_cast<int>((layers - 2 * end) / (pp - 2));
    std::vector<int> stages(static_cast<std::size_t>(pp), middle);
    stages.front() = stages.back() = static_cast<int>(end);
    SetStages(m, stages);
    return m.Assume("config_extra: uneven stages not stated, taken as {} at the ends, {} between",
                    end, middle);
  }
  m.Assume("config_extra: uneven stages not stated, taken as even");
}

// Layers that pp does not divide. PipelineModule's type:transformer of DeepSpeed before 0.12.5
// probes a bound from the first stage on (runtime/utils.py, _lprobe), so that the last has what is
// left; where embedding and head make it divide, type:transformer|embedding counts them.
void SplitUnevenly(const Mapping& m) {
  const std::int64_t layers = m.out->model.layers, stages = m.pp();
  const job::UnevenStages how = m.recipe().uneven_stages;
  if (how == job::UnevenStages::kRefused) return;
  if (how == job::UnevenStages::kFilled && (layers + 2) % stages == 0) {
    m.Assume("embedding and loss counted as a layer each: {} divides {} so", stages, layers + 2);
    return;  // which LayersPerChunk does by itself
  }
  const std::int64_t most = (layers + stages - 1) / stages;
  std::vector<int> split;
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::int64_t spread = layers / stages + (s < layers % stages ? 1 : 0);
    const std::int64_t left = std::clamp<std::int64_t>(layers - s * most, 0, most);
    split.push_back(static_cast<int>(how == job::UnevenStages::kFilled ? left : spread));
  }
  SetStages(m, split);
  m.Assume("layers per stage {} to {}: {} balances what pp does not divide", split.back(), most,
           m.rule.label);
}

// Groups of pp micro-batches do not always divide them; a run that exists chose one that fits.
void GroupMicrobatches(const Mapping& m) {
  const std::int64_t microbatches = m.microbatches(), pp = m.pp();
  for (std::int64_t group = pp; group <= microbatches; ++group) {
    const std::int64_t rest = microbatches % group;
    if (rest != 0 && rest < pp) continue;
    if (group == pp) return;
    m.job().Set("parallel.microbatch_group", group);
    return m.Assume("micro-batch groups of {}: pp leaves too small a rest of {}", group,
                    microbatches);
  }
}

}  // namespace

Status MapDegrees(const Mapping& m) {
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t tp, m.row.Needed("tp", 1, 1 << 20));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t pp, m.row.Needed("pp", 1, 1 << 20));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t gpus, m.row.Needed("gpus", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto dp, m.row.Whole("dp", 1, 1 << 22));
  ORRERY_ASSIGN_OR_RETURN(const auto vpp, m.row.Whole("vpp", 1, 1024));
  ORRERY_ASSIGN_OR_RETURN(const auto cp, m.row.Whole("cp", 1, 4096));
  const std::int64_t model_ranks = tp * pp * cp.value_or(1);
  if (gpus % model_ranks != 0) {
    return InvalidInput("gpus={}: not a multiple of tp·pp·cp = {}·{}·{}", gpus, tp, pp,
                        cp.value_or(1));
  }
  const std::int64_t left = gpus / model_ranks;
  if (dp != left) {
    m.Assume("dp={} ({}: gpus / (tp·pp·cp))", left,
             dp ? fmt::format("{} contradicts gpus", *dp) : "blank");
  }
  m.job().Set("parallel.tp", tp);
  m.job().Set("parallel.pp", pp);
  m.job().Set("parallel.dp", left);
  if (cp.value_or(1) > 1) m.job().Set("parallel.cp", *cp);
  if (vpp.value_or(1) > 1 && pp > 1) m.job().Set("parallel.vpp", *vpp);
  return {};
}

Status MapBatch(const Mapping& m, std::int64_t open_micro_batch) {
  constexpr std::int64_t kMost = 1 << 30;
  constexpr std::string_view kCut = "training.micro_batch";
  job::Draft& job = m.job();
  job.Set("training.seq_len", 1);  // an image is one token
  if (m.row.text("layer_kind") != "cnn") {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t seq_len, m.row.Needed("seq_len", 1, 1 << 24));
    job.Set("training.seq_len", seq_len);
  }
  ORRERY_ASSIGN_OR_RETURN(const auto micro, m.row.Whole("micro_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto global, m.row.Whole("global_batch", 1, kMost));
  ORRERY_ASSIGN_OR_RETURN(const auto steps, m.row.Whole("grad_accum", 1, kMost));
  const std::int64_t dp = m.dp();
  if (micro) {
    job.Set(kCut, *micro);
  } else if (global && steps && *global % (dp * *steps) == 0) {
    job.Set(kCut, *global / (dp * *steps));
    m.Assume("micro_batch={} (blank: global_batch / (dp·grad_accum))", m.degree(kCut));
  } else if (job.Has(kCut)) {
    // The release's scripts say it.
  } else if (job.Has("training.packed_len")) {
    m.Assume("micro_batch=1 (blank: the release packs samples into one sequence)");
  } else if (global) {
    job.Set(kCut, open_micro_batch);
    m.out->open_micro_batch = true;
  } else {
    m.Assume("micro_batch=1 (blank)");
  }
  if (!global && !steps) {
    return InvalidInput("global_batch is blank: the run cannot be set up without it");
  }
  const std::int64_t product = m.degree(kCut) * dp * steps.value_or(1);
  job.Set("training.global_batch", global.value_or(product));
  if (!global) m.Assume("global_batch={} (blank: micro_batch·dp·grad_accum)", product);
  CutLocalBatch(m, steps.value_or(1));
  if (global && steps && m.degree(kCut) * dp * *steps != *global) {
    m.Assume("grad_accum={} contradicts global_batch; the batch sizes hold", *steps);
  }
  return {};
}

void MapStages(const Mapping& m) {
  const std::int64_t layers = m.out->model.layers, pp = m.pp();
  if (!m.row.has("vpp") && pp > 1) AssumeChunks(m);
  if (layers % pp != 0 && layers > pp) SplitUnevenly(m);
  if (HasToken(m.row, "uneven")) SpareEnds(m);
  CutStages(m);
  if (m.vpp() > 1) GroupMicrobatches(m);
  if (HasExperts(m.row)) BalanceLayers(m);
}

}  // namespace orrery::search
