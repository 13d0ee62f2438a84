// 'trace': records ranks of a PyTorch training command. orrery-trace, the Python package in
// python/tracer, does it; this hands it the arguments.
#include "run_python.h"
#include "verb.h"

namespace orrery::app {
namespace {

class Trace final : public Verb {
 public:
  std::string_view name() const override { return "trace"; }
  std::string_view description() const override {
    return "record what ranks of your own PyTorch training command do, without a GPU";
  }
  std::string_view examples() const override {
    return "  orrery trace --world-size 8 -- python train.py --my-arguments\n"
           "  orrery trace --world-size 8192 --rank all -- python pretrain_gpt.py\n"
           "  orrery trace --show trace\n";
  }
  void Declare(CLI::App* app) override {
    app_ = app;
    app->prefix_command();
    app->footer(
        "Options: --world-size N, --rank R,...|all, --mesh NAME=SIZE,..., --out DIRECTORY,\n"
        "--step N, --show DIRECTORY; docs/tracing.md says what they do. 'orrery simulate trace\n"
        "--cluster NAME' then runs what was recorded. Needs PyTorch (pip install torch) in\n"
        "the Python that $ORRERY_PYTHON names, else in python3.\n\n");
  }
  Status Run(Session*) override {
    std::vector<std::string> words = {"-m", "orrery_trace"};
    const std::vector<std::string> given = app_->remaining();
    words.insert(words.end(), given.begin(), given.end());
    return BecomePython(words);
  }

 private:
  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Verb> MakeTrace() { return std::make_unique<Trace>(); }

}  // namespace orrery::app
