#include <fmt/format.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "orrery/base/text.h"
#include "orrery/cluster/cluster.h"
#include "orrery/job/simulate.h"
#include "orrery/results/table.h"
#include "orrery/workload/model.h"
#include "verb.h"

namespace orrery::app {
namespace {

// What works here and what is missing; never a failure by itself.
class DoctorVerb final : public Verb {
 public:
  std::string_view name() const override { return "doctor"; }
  std::string_view examples() const override {
    return "  orrery doctor\n"
           "  orrery doctor --json -\n"
           "  orrery doctor --json doctor.json\n";
  }
  std::string_view description() const override {
    return "say what is installed and what is missing";
  }
  void Declare(CLI::App* app) override {
    app->add_option("--json", json_, "As JSON to FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    nlohmann::ordered_json checks = nlohmann::ordered_json::array();
    results::TextTable table;
    const auto add = [&](std::string_view what, bool ok, const std::string& detail) {
      table.Row({std::string(what), ok ? "ok" : "missing", detail});
      checks.push_back({{"name", what}, {"ok", ok}, {"detail", detail}});
    };
    add("orrery", true, fmt::format("version {}", job::Version()));
    struct sysinfo info {};
    sysinfo(&info);
    add("machine", true,
        fmt::format("{} CPUs, {} memory, {} free", std::thread::hardware_concurrency(),
                    HumanBytes(static_cast<std::int64_t>(info.totalram * info.mem_unit)),
                    HumanBytes(static_cast<std::int64_t>(info.freeram * info.mem_unit))));
    add("presets", true,
        fmt::format("{} models, {} clusters", workload::ModelPresets().size(),
                    cluster::Presets().size()));
    const std::string measured = Session::MeasuredDatabase();
    add("measured kernels", !measured.empty(),
        measured.empty() ? "no measured.sqlite beside the program and no $ORRERY_MEASURED: kernel "
                           "times are modelled"
                         : Printable(measured));
    const bool gpu = access("/dev/nvidia0", F_OK) == 0;
    add("GPU", gpu, gpu ? "an NVIDIA GPU is here" : "none; only measuring needs one");
    const nlohmann::ordered_json json = {{"schema", "orrery.doctor/1"}, {"checks", checks}};
    return session->Answer(json_, json.dump(2) + "\n", table.Render(""));
  }

 private:
  std::string json_;
};

}  // namespace

std::unique_ptr<Verb> MakeDoctor() { return std::make_unique<DoctorVerb>(); }

}  // namespace orrery::app
