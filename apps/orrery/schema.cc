#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/job/astra.h"
#include "orrery/job/frameworks.h"
#include "orrery/job/importers.h"
#include "orrery/job/tables.h"
#include "orrery/network/options.h"
#include "orrery/recipes/import.h"
#include "orrery/results/schema.h"
#include "orrery/search/validate/columns.h"
#include "orrery/workload/importers/storage/settings.h"
#include "orrery/workload/schedules/patterns.h"
#include "verb.h"

namespace orrery::app {
namespace {

class SchemaVerb final : public Verb {
 public:
  std::string_view name() const override { return "schema"; }
  std::string_view examples() const override {
    return "  orrery schema job\n"
           "  orrery schema job --keys training\n"
           "  orrery schema trace --keys loggops\n";
  }
  std::string_view description() const override {
    return "print the JSON Schema of a job, a result or an error, or explain the keys of a job";
  }
  void Declare(CLI::App* app) override {
    app_ = app;
    app->add_option("NAME", schema_, "job, result or error; with --keys also trace and traffic")
        ->required();
    app->add_option("--keys", keys_,
                    "Explain the keys of --set that begin with PREFIX; all if it is left out")
        ->expected(0, 1);
    app->add_option("--json", json_, "To FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    if (app_->count("--keys") > 0) return Keys(session);
    std::string text;
    if (schema_ == "job") {
      text = job::JobSchema();
    } else if (schema_ == "result") {
      text = results::ResultSchema();
    } else if (schema_ == "error") {
      text = results::ErrorSchema();
    } else if (schema_ == "job-keys") {
      text = job::KeyTable();  // the table of docs/formats/job.md
    } else if (schema_ == "frameworks") {
      text = job::FrameworkSummary();  // of docs/frameworks.md
    } else if (schema_ == "columns") {
      text = search::ColumnTables();  // of docs/validation.md
    } else if (schema_ == "recipes") {
      text = recipes::DialectTable();  // of docs/recipes.md
    } else {
      constexpr std::array<std::string_view, 3> kNames = {"job", "result", "error"};
      return InvalidInput("{}", UnknownName("schema", Printable(schema_), kNames));
    }
    return session->Answer(json_, text, text);
  }

 private:
  static std::vector<const OptionTable*> TablesOf(std::string_view schema) {
    if (schema == "job") return job::Tables();
    if (schema == "traffic") return {&workload::PatternOptions(), &workload::StorageOptions()};
    std::vector<const OptionTable*> tables;
    if (schema != "trace") return tables;
    tables.push_back(&network::LogGopsOptions());
    for (const job::Importer& importer : job::Importers()) {
      const bool known = std::ranges::find(tables, importer.options) != tables.end();
      if (importer.options != nullptr && !known) tables.push_back(importer.options);
    }
    tables.push_back(&job::AstraKeys());
    return tables;
  }

  Status Keys(Session* session) {
    const std::vector<const OptionTable*> tables = TablesOf(schema_);
    if (tables.empty()) {
      return InvalidInput("--keys: {} has none; job, trace and traffic have", Printable(schema_));
    }
    if (!json_.empty()) {
      return InvalidInput("--json: the keys as JSON are 'orrery schema job --json'");
    }
    std::string text;
    std::vector<std::string> sections;
    for (const OptionTable* table : tables) {
      text += job::KeyList(*table, keys_);
      if (!table->path.empty()) sections.emplace_back(table->path);
    }
    if (!text.empty()) return session->Answer("", text, text);
    const std::vector<std::string_view> valid(sections.begin(), sections.end());
    return InvalidInput("--keys: no key begins with '{}'; {}", Printable(keys_),
                        UnknownName("section", Printable(keys_), valid));
  }

  CLI::App* app_ = nullptr;
  std::string schema_, json_, keys_;
};

}  // namespace

std::unique_ptr<Verb> MakeSchema() { return std::make_unique<SchemaVerb>(); }

}  // namespace orrery::app
