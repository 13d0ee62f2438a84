// Rows of models in plain PyTorch (FSDP, DDP, DeepSpeed): what torch.compile does, and what the
// columns of FSDP2's mean where torch.distributed.pipelining runs the stages.
//
// Source: pytorch/torchtitan: models/llama3, parallelisms/pipelining_utils.py (later
// distributed/pipeline.py), config_manager.py, at the dates named.
#pragma once

#include "orrery/search/validate/mapping.h"

namespace orrery::search {

inline bool PlainTorch(const Mapping& m) {
  return m.defaults().options.torch_layers != workload::TorchLayers::kFused;
}
inline bool Automodel(const Mapping& m) { return m.rule.framework->name.starts_with("automodel@"); }
// Stages run by torch.distributed.pipelining; DeepSpeed brings a pipeline of its own.
inline bool TorchPipelining(const Mapping& m) {
  return m.rule.framework->name.starts_with("fsdp2@") || Automodel(m);
}

// config_extra or the framework's name says torch.compile.
bool SaysCompiled(const Configuration& row);
// Compiled where the row says so, else as the framework has it.
void MapTorchLayers(const Mapping& m);
// One pass a step over several stages, or fewer than stages: micro_batch is the local batch, which
// torch.distributed.pipelining cuts: into `stated` parts, or as many as stages (torchtitan until 7
// April 2025), or samples; passes of one step follow each other as one here. REQUIRES: the degrees
// and the batch are mapped.
void CutLocalBatch(const Mapping& m, std::int64_t stated);
// Two chunks a stage for an interleaved schedule whose vpp is blank; chunks as torchtitan cuts
// them: from 15 April 2025 on embedding and output layer count as a layer each and the first
// chunks have one more, before that neither the first nor the last has. Automodel: chunks of two
// layers (layers_per_stage), their number rounded down to a multiple of pp, the first with one
// more.
void CutStages(const Mapping& m);
// Experts dealt out in turn, so that a token's are neighbours, where the run forces balance.
bool DealsExpertsOut(const Mapping& m);
// config_extra names async tensor parallelism.
bool AsyncTp(const Mapping& m);

}  // namespace orrery::search
