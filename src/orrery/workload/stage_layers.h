// How frameworks share out a model's layers over pipeline stages that do not divide them, by the
// words of parallel.layers_per_stage. LayersPerChunk (plan.h) has `auto` and given lists.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/base/named.h"

namespace orrery::workload {

struct Model;

enum class StageCut : std::uint8_t {
  kAuto,
  kSpread,    // the first chunks have one more
  kFilled,    // each has as many as the largest must, the last what is left
  kCounted,   // embedding and head count as a layer each; the first chunks have one more
  kInner,     // chunks behind the first have one more
  kShort,     // as kFilled, but at least one layer each; where two are missing, one at either end
  kThinEnds,  // first and last stage have fewer, those between share the rest evenly
};

// DeepSpeed's PipelineModule before 0.12.5 probes a bound from the first stage on
// (runtime/utils.py, _lprobe): kFilled. torchtitan counts embedding and head from 15 April 2025 on
// (distributed/pipeline.py), and left them out before (parallelisms/pipelining_utils.py): kCounted,
// kInner. Megatron's account_for_embedding_in_pipeline_split and _loss_: kShort; its
// --decoder-first-pipeline-num-layers and -last-: kThinEnds.
inline constexpr std::array<Named<StageCut>, 7> kStageCuts = {{{"auto", StageCut::kAuto},
                                                               {"spread", StageCut::kSpread},
                                                               {"filled", StageCut::kFilled},
                                                               {"counted", StageCut::kCounted},
                                                               {"inner", StageCut::kInner},
                                                               {"short", StageCut::kShort},
                                                               {"thin_ends", StageCut::kThinEnds}}};

// A number a chunk, in chunk order; empty: all have as many, or the rule says nothing here (more
// chunks than layers, too). O(chunks).
std::vector<int> CutLayers(StageCut cut, std::int64_t layers, std::int64_t chunks);

// Why a rule says nothing of layers that chunks do not divide, and what to say instead; empty: it
// says something, or `auto` does.
std::string CutProblem(StageCut cut, const Model& model, std::int64_t chunks);

}  // namespace orrery::workload
