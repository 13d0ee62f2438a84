// Muon's matrices over a stage's layers, and over ranks (optimizer.h).
#include <map>

#include "orrery/workload/generators/program_writer.h"
#include "orrery/workload/generators/sharding/optimizer.h"

namespace orrery::workload {

// All layers' matrices, or those of the rank that has most of them.
void ProgramWriter::Orthogonalise() {
  std::map<Kind, std::int64_t> layers;
  for (int c = 0; c < chunks(); ++c) {
    const Chunk& chunk = chunks_[static_cast<std::size_t>(c)];
    for (std::size_t i = 0; i < chunk.parts.kinds.size();) {
      const Kind kind = chunk.parts.kinds[i];
      std::size_t end = i;
      while (end < chunk.parts.kinds.size() && chunk.parts.kinds[end] == kind) ++end;
      const auto run = static_cast<int>(end - i);
      layers[kind] += run;
      if (!job_.layer_wise()) {
        Call(job_.blocks->Get(BlockKind::kOrthogonalise, kind, -1, -1), c, -1,
             chunk.first_layer + static_cast<int>(i), run);
      }
      i = end;
    }
  }
  if (!job_.layer_wise()) return;
  for (const auto& [kind, n] : layers) OrthogonalisePart(kind, n);
}

// Matrices of so many layers of a kind, dealt out: whole layers' and a rest of one.
void ProgramWriter::OrthogonalisePart(std::int64_t kind, std::int64_t layers) {
  const MatrixCounts each = CountMatrices(OfKind(*job_.shape, kind));
  const auto dealt = [&](std::int64_t matrices, std::int64_t ranks, auto get) {
    if (matrices == 0) return;
    const std::int64_t most = (matrices * layers + ranks - 1) / ranks;
    const int first = chunks_.front().first_layer;
    if (most >= matrices) Call(get(matrices), 0, -1, first, static_cast<int>(most / matrices));
    if (most % matrices > 0) Call(get(most % matrices), 0, -1, first, 1);
  };
  dealt(each.own, plan().shard_ranks(),
        [&](std::int64_t n) { return job_.blocks->Get(BlockKind::kOrthogonalise, kind, n, 0); });
  dealt(each.experts, plan().expert_dp(),
        [&](std::int64_t n) { return job_.blocks->Get(BlockKind::kOrthogonalise, kind, 0, n); });
}

}  // namespace orrery::workload
