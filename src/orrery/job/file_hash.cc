#include "orrery/job/file_hash.h"

#include <vector>

#include "orrery/base/hash.h"
#include "orrery/cluster/topology.h"
#include "orrery/interference/learned.h"

namespace orrery::job {

std::uint64_t HashOfFiles(const Job& job) {
  Hasher hash;
  bool any = false;
  for (const Workload& w : job.workloads) {
    if (const auto& given = w.plan.parallel.given; given != nullptr) {
      any = true;
      hash.Add(given->v_shape).Add(given->by_microbatch);
      for (const std::vector<workload::PipelinePass>& stage : given->stages) {
        hash.Add(stage.size());
        for (const workload::PipelinePass& p : stage) {
          hash.Add(p.kind).Add(p.chunk).Add(p.microbatch);
        }
      }
    }
    if (const auto& routing = w.plan.experts.given_routing; routing != nullptr) {
      any = true;
      for (const std::vector<double>& layer : routing->layers) {
        hash.Add(layer.size());
        for (const double share : layer) hash.Add(share);
      }
    }
  }
  if (!job.cluster.topology.file.empty()) {
    any = true;
    hash.Add(cluster::HashOf(job.cluster.topology));
  }
  if (job.engine.slowdown != nullptr) {
    any = true;
    hash.Add(job.engine.slowdown->content());
  }
  return any ? hash.value() : 0;
}

}  // namespace orrery::job
