#include "orrery/results/compare/compare.h"

#include <string>

#include "arguments.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/search/explain/explain.h"
#include "verb.h"

namespace orrery::app {
namespace {

class CompareVerb final : public Verb {
 public:
  std::string_view name() const override { return "compare"; }
  std::string_view examples() const override {
    return "  orrery compare before.json after.json\n"
           "  orrery compare before.json after.json --json difference.json\n"
           "  orrery compare a.json b.json --json -\n";
  }
  std::string_view description() const override {
    return "say what changed from one result to another, part by part";
  }

  void Declare(CLI::App* app) override {
    app->add_option("A", a_, "Result of 'orrery simulate --json FILE'")->required();
    app->add_option("B", b_, "Another one")->required();
    app->add_option("--json", json_, "Write the comparison as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"A", a_}, {"B", b_}}, {{"--json", json_}}));
    ORRERY_ASSIGN_OR_RETURN(const std::string a, ReadFile(a_, kLargestResult));
    ORRERY_ASSIGN_OR_RETURN(const std::string b, ReadFile(b_, kLargestResult));
    ORRERY_ASSIGN_OR_RETURN(results::Comparison comparison,
                            results::Compare(a, Printable(a_), b, Printable(b_)));
    if (!comparison.same()) {
      search::AddModules(a, b, Session::MeasuredDatabase(), &comparison);
    }
    return session->Answer(json_, results::ComparisonToJson(comparison),
                           results::ComparisonToText(comparison));
  }

  std::vector<Reading> reads() const override {
    return {{a_, {FileKind::kResult}}, {b_, {FileKind::kResult}}};
  }

 private:
  std::string a_, b_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeCompare() { return std::make_unique<CompareVerb>(); }

}  // namespace orrery::app
