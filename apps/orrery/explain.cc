#include "orrery/search/explain/explain.h"

#include <string>

#include "arguments.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "verb.h"

namespace orrery::app {
namespace {

class ExplainVerb final : public Verb {
 public:
  std::string_view name() const override { return "explain"; }
  std::string_view examples() const override {
    return "  orrery explain result.json\n"
           "  orrery explain result.json breakdown.overall.exposed_tp_s\n"
           "  orrery explain result.json memory.0.total_bytes\n";
  }
  std::string_view description() const override {
    return "say where a number of a result comes from, what to buy next and what would narrow the "
           "interval";
  }

  void Declare(CLI::App* app) override {
    app->add_option("RESULT", input_, "Result of 'orrery simulate --json FILE'")->required();
    app->add_option("FIELD", field_,
                    "A numeric field of it, such as breakdown.overall.exposed_tp_s or "
                    "memory.0.total_bytes; without it the step as a whole");
    app->add_option("--json", json_, "Write the explanation as JSON to FILE, or to stdout (-)");
  }

  Status Run(Session* session) override {
    ORRERY_RETURN_IF_ERROR(CheckFiles({{"RESULT", input_}}, {{"--json", json_}}));
    ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(input_, kLargestResult));
    ORRERY_ASSIGN_OR_RETURN(
        search::Explainer explainer,
        search::Explainer::Create(text, Printable(input_), Session::MeasuredDatabase()));
    if (field_.empty()) {
      ORRERY_ASSIGN_OR_RETURN(const search::Summary summary, explainer.Summarise());
      return session->Answer(json_, search::SummaryToJson(summary), search::SummaryToText(summary));
    }
    Result<search::Explanation> explanation = explainer.Explain(field_);
    if (!explanation.ok()) return std::move(explanation).TakeStatus().In(Printable(input_));
    return session->Answer(json_, search::ExplanationToJson(*explanation),
                           search::ExplanationToText(*explanation));
  }

  std::vector<Reading> reads() const override { return {{input_, {FileKind::kResult}}}; }

 private:
  std::string input_, field_, json_;
};

}  // namespace

std::unique_ptr<Verb> MakeExplain() { return std::make_unique<ExplainVerb>(); }

}  // namespace orrery::app
