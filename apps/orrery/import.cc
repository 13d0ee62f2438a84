#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "orrery/base/file.h"
#include "orrery/base/text.h"
#include "orrery/recipes/import.h"
#include "recipe_options.h"
#include "verb.h"

namespace orrery::app {
namespace {

using recipes::Effect;
using recipes::Imported;
using recipes::Use;

std::size_t Count(const Imported& imported, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      imported.uses, [&](const Use& use) { return recipes::Name(use.effect) == name; }));
}

// `text` as lines of a YAML comment, none of more than kWidth characters where it has spaces.
void Comment(std::string_view text, std::string* out) {
  constexpr std::size_t kWidth = 100;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > kWidth) {
      end = text.rfind(' ', kWidth);
      if (end == std::string_view::npos) end = std::min(text.find(' '), text.size());
    }
    *out += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// What became of the arguments, before the job's first line.
std::string Header(const Imported& imported, const std::vector<std::string>& files) {
  std::vector<std::string> names;  // which may hold line breaks, and those would end a comment
  for (const std::string& file : files) names.push_back(Printable(file));
  std::string text;
  Comment(
      fmt::format("From {} by 'orrery import': {} arguments, {} of them below, {} without effect "
                  "on what is predicted, {} left out.",
                  fmt::join(names, ", "), imported.uses.size(),
                  Count(imported, "mapped") + Count(imported, "assumed"),
                  Count(imported, "without effect"), Count(imported, "left out")),
      &text);
  std::map<std::string, std::vector<std::string>> inert;
  for (const Use& use : imported.uses) {
    if (use.effect == Effect::kInert) inert[use.why].push_back(Printable(use.argument, 80));
  }
  for (const auto& [why, names] : inert) {
    Comment(fmt::format("Without effect: {} ({})", fmt::join(names, ", "), why), &text);
  }
  return text;
}

class ImportVerb final : public Verb {
 public:
  std::string_view name() const override { return "import"; }
  std::string_view examples() const override {
    return "  orrery import train_llama.sh --cluster h100-ib-400g -o job.yaml\n"
           "  orrery import train.sh --env NNODES=16 --cluster h100-ib-400g\n"
           "  orrery import ds_config.json config.json --cluster a100-80g-ib-200g --nodes 2\n";
  }
  std::string_view description() const override {
    return "turn a launch script or a framework's configuration into a job";
  }

  void Declare(CLI::App* app) override {
    app->add_option("FILE", files_,
                    "Launch script or configuration; a model's config.json beside it")
        ->required();
    app->add_option("-o,--output", output_, "Write the job to FILE (else to stdout)");
    recipe_.Declare(app);
    app->add_option("--set", recipe_.set, "key.path=value: as if the file said so")
        ->allow_extra_args(false);
    app->add_option("--json", json_,
                    "Job and every argument's effect as JSON to FILE, or stdout (-)");
    app->footer("'orrery list recipes' says what is read; data/recipes/ has every argument.\n");
  }

  Status Run(Session* session) override {
    std::vector<NamedFile> inputs;
    for (const std::string& file : files_) inputs.push_back({"FILE", file});
    ORRERY_RETURN_IF_ERROR(CheckFiles(inputs, {{"--output", output_}, {"--json", json_}}));
    ORRERY_ASSIGN_OR_RETURN(recipes::Options options, recipe_.Resolve());
    options.folder = std::filesystem::path(output_).parent_path().string();
    ORRERY_ASSIGN_OR_RETURN(const Imported imported, recipes::Import(files_, options));
    const std::string text = Header(imported, files_) + imported.job_text;
    if (!output_.empty()) ORRERY_RETURN_IF_ERROR(WriteFile(output_, text));
    const job::Workload& workload = imported.job.workloads.front();
    session->Note(fmt::format(
        "{}: {} parameters on {} GPUs, {} sequences of {} tokens a step; {} arguments, {} "
        "without effect, {} left out",
        imported.dialect, HumanParameters(workload.model.parameters()),
        HumanCount(static_cast<std::int64_t>(imported.job.ranks())),
        HumanCount(workload.plan.batch.global_batch), HumanCount(workload.plan.batch.seq_len),
        imported.uses.size(), Count(imported, "without effect"), Count(imported, "left out")));
    return session->Answer(json_, recipes::ToJson(imported), output_.empty() ? text : "");
  }

  std::vector<Reading> reads() const override {
    std::vector<Reading> all;
    for (const std::string& file : files_) {
      all.push_back({file, {FileKind::kRecipe, FileKind::kModel}});
    }
    return all;
  }

 private:
  std::vector<std::string> files_;
  std::string output_, json_;
  RecipeOptions recipe_;
};

}  // namespace

std::unique_ptr<Verb> MakeImport() { return std::make_unique<ImportVerb>(); }

}  // namespace orrery::app
