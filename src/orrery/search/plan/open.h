// The space of plans that a job file leaves open.
//
// A key is open where the file gives it a list ("tp: [1, 2, 4]"), a range ("pp: 1..16") or the word
// auto; `parallel: auto` opens the degrees of parallelism. Of a key that takes a list
// (layers_per_stage), a list of lists. `vary` opens keys beside the file. A file that leaves
// nothing open has degrees, micro-batch and recompute opened, so that a finished job can be
// improved.
//
// auto means: tp divisors of a node's GPUs; pp divisors of all GPUs, up to the layers; vpp up to 8
// chunks; cp powers of two that leave 4,096 tokens a rank; ep divisors of the experts; micro-batch
// powers of two up to 16; recompute_layers powers of two below the layers, beside each form of
// recompute that the job leaves open (recompute_method, or block); of every other key all of its
// choices. What a rule of the framework refuses is counted as refused when its turn comes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/search/evaluate/evaluator.h"
#include "orrery/search/space/space.h"

namespace orrery::search {

struct OpenJob {
  Template job;  // open keys are set by a point of the space
  Space space;
  bool by_default = false;               // the file left nothing open
  std::vector<std::string> given_first;  // assignments of the file's own values, by_default only
};

// The node at "parallel.tp"; null where there is none.
const formats::Node* NodeAt(const formats::Node& root, std::string_view path);
// The document with the first of the clusters that it leaves open.
formats::Document WithFirstCluster(formats::Document document);

Result<OpenJob> OpenSpace(Template job, const std::vector<std::string>& vary);

}  // namespace orrery::search
