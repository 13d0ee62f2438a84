#include "verb.h"

namespace orrery::app {
std::vector<std::unique_ptr<Verb>> AllVerbs() {
  std::vector<std::unique_ptr<Verb>> verbs;
  verbs.push_back(MakeSimulate());
  verbs.push_back(MakeImport());
  verbs.push_back(MakeList());
  verbs.push_back(MakeInspect());
  verbs.push_back(MakeDoctor());
  verbs.push_back(MakeSchema());
  verbs.push_back(MakePlan());
  verbs.push_back(MakeSweep());
  verbs.push_back(MakeMerge());
  verbs.push_back(MakeValidate());
  verbs.push_back(MakeConvert());
  verbs.push_back(MakeTrace());
  verbs.push_back(MakeTraffic());
  verbs.push_back(MakeQueue());
  verbs.push_back(MakeCalibrate());
  verbs.push_back(MakeCompare());
  verbs.push_back(MakeExplain());
  return verbs;
}

}  // namespace orrery::app
