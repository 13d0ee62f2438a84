// A sweep on a Ray cluster: the Python package hands its pieces to Ray and joins them.
#pragma once

#include <string>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/search/space/space.h"
#include "orrery/search/sweep/sweep.h"

namespace orrery::app {

struct RayRequest {
  std::string job;  // path
  std::vector<std::string> set;
  std::string network, calibration;
  bool replay = true;
  int threads = 1;
  int shards = 0;  // 0: four pieces a core of the cluster
};

// Runs $ORRERY_PYTHON (else python3) -m orrery._on_ray, whose messages go to stderr; the package
// beside this program is found before others. Needs Ray and the package.
Result<search::Sweep> SweepOnRay(const RayRequest& request, const search::Space& space);

}  // namespace orrery::app
