#include "orrery/search/validate/validate.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "interrupt.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/constants/constants.h"
#include "orrery/search/calibrate/calibrate.h"
#include "orrery/search/validate/report.h"
#include "orrery/search/validate/row_tables.h"
#include "progress.h"
#include "verb.h"

namespace orrery::app {
namespace {

class ValidateVerb final : public Verb {
 public:
  std::string_view name() const override { return "validate"; }
  std::string_view examples() const override {
    return "  orrery validate validation/training_measured.csv\n"
           "  orrery validate validation/nccl_measured.csv --leave-out\n"
           "  orrery validate runs.csv --plot runs.svg --json runs.json\n";
  }
  std::string_view description() const override {
    return "predict every row of a table of measured runs and state the errors";
  }

  void Declare(CLI::App* app) override {
    app->add_option("TABLE", table_, "CSV of training runs or of nccl-tests (docs/validation.md)")
        ->required();
    app->add_option("--json", json_, "Write rows and summary as JSON to FILE, or to stdout (-)");
    app->add_option("--plot", plot_, "Draw predicted against measured as SVG");
    app->add_option("--export", export_,
                    "Write each row's job to DIR as YAML that 'orrery simulate' runs, and stop");
    app->add_option("--network", network_,
                    "Network of training runs in place of analytic; 'orrery list networks'");
    app->add_option("--kernels", kernels_, "What prices kernels: model, or measured tables")
        ->check(OneOf("kernels", {"model", "measured"}));
    app->add_option("--data", data_,
                    "Folder with tables of your own beside those of data/ "
                    "(docs/formats/data.md)")
        ->allow_extra_args(false);
    app->add_option("--threads", threads_, "Threads; default: one per core");
    app->add_flag("--leave-out", leave_out_,
                  "Predict each row also with constants that were fitted without its source");
    app->add_option("--constants", constants_,
                    "CSV of name,value: constants in place of the fitted ones ('prior' for all: a "
                    "priori values)");
    app->add_option("--calibration", calibration_, "Constants from 'orrery calibrate'");
    app->add_option("--sensitivities", sensitivities_,
                    "Write each row's derivatives by the constants to FILE and stop");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles(
        {{"TABLE", table_}, {"--constants", constants_}, {"--calibration", calibration_}},
        {{"--json", json_}, {"--plot", plot_}, {"--sensitivities", sensitivities_}}));
    if (!sensitivities_.empty() && (leave_out_ || !json_.empty() || !plot_.empty())) {
      return InvalidInput(
          "--sensitivities: writes its file and stops; leave --json, --plot and --leave-out out");
    }
    if (!export_.empty() && (leave_out_ || !json_.empty() || !plot_.empty() ||
                             !sensitivities_.empty() || !constants_.empty())) {
      return InvalidInput(
          "--export: writes jobs and predicts nothing; leave --json, --plot, --leave-out, "
          "--constants and --sensitivities out");
    }
    search::ValidateOptions options;
    options.network = network_;
    options.measured_kernels = kernels_ == "measured";
    ORRERY_ASSIGN_OR_RETURN(options.tables, search::ReadRowTables(data_));
    if (threads_) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t threads,
                              WholeNumber("--threads", *threads_, 1, 1024));
      options.threads = static_cast<int>(threads);
    }
    options.measured_database = Session::MeasuredDatabase();
    options.leave_out = leave_out_;
    if (!calibration_.empty()) {
      if (leave_out_ || !constants_.empty()) {
        return InvalidInput("--calibration: --leave-out and --constants bring their own constants");
      }
      ORRERY_ASSIGN_OR_RETURN(options.constants, search::ReadCalibration(calibration_));
    }
    if (!constants_.empty()) {
      if (leave_out_) return InvalidInput("--constants: --leave-out brings its own constants");
      ORRERY_ASSIGN_OR_RETURN(options.constants, constants::Read(constants_));
    }
    Progress progress("rows");
    options.progress = [&](std::size_t done, std::size_t total) { progress.Show(done, total); };
    ORRERY_ASSIGN_OR_RETURN(const formats::CsvTable table, formats::CsvTable::Read(table_));
    if (!export_.empty()) return Export(session, table, options);
    if (!sensitivities_.empty()) {
      WatchOutput(sensitivities_);
      ORRERY_ASSIGN_OR_RETURN(const std::string text, search::Sensitivities(table, options));
      return WriteFile(sensitivities_, text);
    }
    WatchOutput(plot_);
    ORRERY_ASSIGN_OR_RETURN(const search::Report report, search::ValidateTable(table, options));
    progress.End();
    for (const std::string& warning : report.warnings) session->Note("orrery: " + warning);
    if (!plot_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(plot_, search::ReportToSvg(report)));
    return session->Answer(json_, search::ReportToJson(report), search::ReportToText(report));
  }

  std::vector<Reading> reads() const override { return {{table_, {}}}; }

 private:
  // A file a row, called by its id.
  Status Export(Session* session, const formats::CsvTable& table,
                const search::ValidateOptions& options) const {
    ORRERY_ASSIGN_OR_RETURN(const std::vector<search::RowDocument> rows,
                            search::ExportJobs(table, options));
    std::error_code error;
    std::filesystem::create_directories(export_, error);
    if (error) return InvalidInput("--export: {}: {}", Printable(export_), error.message());
    for (const search::RowDocument& row : rows) {
      std::string name = row.id;
      for (char& c : name) {
        if (c == '/' || static_cast<unsigned char>(c) < ' ') c = '_';
      }
      if (name.starts_with('.')) name.front() = '_';
      ORRERY_RETURN_IF_ERROR(WriteFile(fmt::format("{}/{}.yaml", export_, name), row.yaml));
    }
    session->Note(fmt::format("orrery: {} of {} rows written to {} as jobs", rows.size(),
                              table.rows(), Printable(export_)));
    return {};
  }

  std::string table_, json_, plot_, constants_, calibration_, sensitivities_, export_;
  std::vector<std::string> data_;
  std::optional<std::string> network_;
  std::string kernels_ = "model";
  bool leave_out_ = false;
  std::optional<std::string> threads_;
};

}  // namespace

std::unique_ptr<Verb> MakeValidate() { return std::make_unique<ValidateVerb>(); }

}  // namespace orrery::app
