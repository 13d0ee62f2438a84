#include <array>
#include <string>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/collective/noted_variables.h"
#include "orrery/job/frameworks.h"
#include "orrery/job/tables.h"
#include "orrery/recipes/import.h"
#include "orrery/results/schema.h"
#include "verb.h"

namespace orrery::app {
namespace {

class SchemaVerb final : public Verb {
 public:
  std::string_view name() const override { return "schema"; }
  std::string_view description() const override { return "JSON Schema of job, result or error"; }
  void Declare(CLI::App* app) override {
    app->add_option("NAME", schema_, "job, result or error")->required();
    app->add_option("--json", json_, "To FILE, or to stdout (-)");
  }
  Status Run(Session* session) override {
    std::string text;
    if (schema_ == "job") {
      text = job::JobSchema();
    } else if (schema_ == "result") {
      text = results::ResultSchema();
    } else if (schema_ == "error") {
      text = results::ErrorSchema();
    } else if (schema_ == "job-keys") {
      text = job::KeyTable();  // the table of docs/formats/job.md
    } else if (schema_ == "framework-pages") {
      text = job::FrameworkPages();  // of docs/frameworks.md
    } else if (schema_ == "nccl-variables") {
      text = collective::NotedTable();  // of docs/collectives.md
    } else if (schema_ == "recipes") {
      text = recipes::DialectTable();  // of docs/recipes.md
    } else {
      constexpr std::array<std::string_view, 3> kNames = {"job", "result", "error"};
      return InvalidInput("{}", UnknownName("schema", Printable(schema_), kNames));
    }
    return session->Answer(json_, text, text);
  }

 private:
  std::string schema_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeSchema() { return std::make_unique<SchemaVerb>(); }

}  // namespace orrery::app
