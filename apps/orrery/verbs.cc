#include "verb.h"

namespace orrery::app {
namespace {

class NotBuilt final : public Verb {
 public:
  NotBuilt(std::string_view name, std::string_view description)
      : name_(name), description_(description) {}
  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  void Declare(CLI::App* app) override { app->allow_extras()->prefix_command(); }
  Status Run(Session*) override {
    return InvalidInput("'orrery {}' is not built yet; 'orrery --help' lists what is", name_);
  }

 private:
  std::string_view name_, description_;
};

}  // namespace

std::unique_ptr<Verb> MakeNotBuilt(std::string_view name, std::string_view description) {
  return std::make_unique<NotBuilt>(name, description);
}

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
  verbs.push_back(MakeTraffic());
  verbs.push_back(MakeCalibrate());
  verbs.push_back(MakeCompare());
  verbs.push_back(MakeExplain());
  verbs.push_back(MakeNotBuilt("serve", "HTTP API and web interface (not built yet)"));
  return verbs;
}

}  // namespace orrery::app
