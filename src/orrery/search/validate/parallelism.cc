#include <algorithm>

#include "orrery/job/plan_keys.h"
#include "orrery/search/validate/config_extra.h"
#include "orrery/search/validate/mapping.h"

namespace orrery::search {
namespace {

// Chunks a stage where vpp is blank: as few as interleaving takes where a run says no more than
// that it interleaved, as the framework's recipes have them, else one.
void AssumeChunks(const Mapping& m) {
  constexpr std::string_view kVpp = "parallel.vpp";
  const std::int64_t layers = m.out->model.layers, pp = m.pp(), of = m.recipe().chunk_layers;
  const bool fits = layers % pp == 0 && m.microbatches() % pp == 0;
  const std::int64_t a_stage = fits ? layers / pp : 1;
  if (HasToken(m.row, "interleaved_if_possible")) {
    // Megatron interleaves over more than two stages unless sends overlap.
    std::int64_t vpp = 1;
    while (pp > 2 && vpp < a_stage && (vpp == 1 || a_stage % vpp != 0)) ++vpp;
    m.job().Set(kVpp, vpp);
    m.Assume("vpp={} (config_extra=interleaved_if_possible, degree not stated)", vpp);
  } else if (m.recipe().interleaved) {
    m.Fill("vpp", kVpp, a_stage);
  } else if (of > 0) {
    m.Fill("vpp", kVpp, std::max<std::int64_t>(1, (layers + of - 1) / of / pp));
  } else if (m.recipe().local_batch != job::LocalBatch::kWhole && HasToken(m.row, "nterleaved")) {
    m.Fill("vpp", kVpp, 2);  // torchtitan's default for interleaved schedules
  }
}

// The rule by which layers are shared out that do not divide, or that the framework shares out by
// its own. With experts Megatron's layouts give fewer to embedding, loss and further tokens.
void CutStages(const Mapping& m) {
  constexpr std::string_view kCut = "parallel.layers_per_stage";
  using workload::StageCut;
  const std::int64_t layers = m.out->model.layers, chunks = m.pp() * m.vpp();
  const auto cuts = [&](StageCut cut) { return !workload::CutLayers(cut, layers, chunks).empty(); };
  const bool with_ends = (layers + 2) % chunks == 0;  // which `auto` shares out
  StageCut cut = m.recipe().stage_cut;
  if (HasToken(m.row, "uneven") && m.vpp() == 1 && cuts(StageCut::kThinEnds)) {
    cut = StageCut::kThinEnds;
  } else if (cut == StageCut::kFilled && with_ends) {
    cut = StageCut::kAuto;
  } else if (!cuts(cut) && HasExperts(m.row) && !with_ends) {
    cut = StageCut::kShort;
  }
  if (cuts(cut)) m.job().Set(kCut, job::NameOf(workload::kStageCuts, cut));
}

// A pipeline that cuts a replica's batch (job::LocalBatch), which micro_batch is where one pass a
// step has several stages, or fewer passes than stages: into `stated` parts, or as the framework
// does. Passes of one step follow each other as one here.
void CutLocalBatch(const Mapping& m, std::int64_t stated) {
  const std::int64_t pp = m.pp(), batch = m.degree("training.micro_batch");
  const std::int64_t passes = m.microbatches();
  const job::LocalBatch how = m.recipe().local_batch;
  if (how == job::LocalBatch::kWhole || pp == 1 || (passes > 1 && passes >= pp)) return;
  const std::int64_t parts = passes > 1                         ? batch
                             : stated > 1                       ? stated
                             : how == job::LocalBatch::kSamples ? batch
                                                                : pp;
  if (parts < 2 || batch % parts != 0) return;
  m.Assume("micro_batch={}: a replica's batch, cut into {} (torch.distributed.pipelining)", batch,
           parts);
  m.job().Set("training.micro_batch", batch / parts);
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
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t tp, m.row.Needed("tp"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t pp, m.row.Needed("pp"));
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t gpus, m.row.Needed("gpus"));
  const auto dp = m.row.Whole("dp");
  const auto vpp = m.row.Whole("vpp");
  const auto cp = m.row.Whole("cp");
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
  m.job().Set("parallel.dp", left);
  if (cp.value_or(1) > 1) m.job().Set("parallel.cp", *cp);
  if (vpp.value_or(1) > 1 && pp > 1) m.job().Set("parallel.vpp", *vpp);
  return {};
}

Status MapBatch(const Mapping& m, std::int64_t open_micro_batch) {
  constexpr std::string_view kCut = "training.micro_batch";
  job::Draft& job = m.job();
  if (m.row.text("layer_kind") == "cnn") {
    job.Set("training.seq_len", 1);  // an image is one token
  } else {
    ORRERY_RETURN_IF_ERROR(m.row.Needed("seq_len").status());
  }
  const auto global = m.row.Whole("global_batch");
  const auto steps = m.row.Whole("grad_accum");
  const std::int64_t dp = m.dp();
  if (m.row.has("micro_batch")) {
    // It is said.
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
  if (!global) {
    const std::int64_t product = m.degree(kCut) * dp * steps.value_or(1);
    job.Set("training.global_batch", product);
    m.Assume("global_batch={} (blank: micro_batch·dp·grad_accum)", product);
  }
  CutLocalBatch(m, steps.value_or(1));
  if (global && steps && m.degree(kCut) * dp * *steps != *global) {
    m.Assume("grad_accum={} contradicts global_batch; the batch sizes hold", *steps);
  }
  return {};
}

void MapStages(const Mapping& m) {
  if (!m.row.has("vpp") && m.pp() > 1) AssumeChunks(m);
  CutStages(m);
  if (m.vpp() > 1) GroupMicrobatches(m);
}

}  // namespace orrery::search
