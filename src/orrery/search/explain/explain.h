// Where a number of a result comes from, down to what nobody computed.
//
// A result holds the job file that it came from, so that an explanation runs it again. Every
// numeric field has a meaning and what it is made of (data/explain/fields.csv): other fields of the
// result, and ends. Ends are keys of the job file with their values; the kernels and collectives of
// the step with their times and the provenance of these; constants, each with its source and with
// what the field does when the constant moves by its spread (the job is run again for each); the
// spreads of the interval; the rules of the allocator and of libraries; and this run of the program
// itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/base/time.h"
#include "orrery/results/compare/compare.h"
#include "orrery/results/step_path.h"

namespace orrery::search {

inline constexpr std::string_view kExplainSchema = "orrery.explain/1";

struct End {
  std::string kind;  // "input", "constant", "kernel", "collective", "rule", "run"
  std::string name;
  std::string text;
  std::string source;
  std::string brief;  // on one screen: a time, or what the constant does to the field
};

struct Explanation {
  std::string field, value, meaning;
  double number = 0;               // the value
  std::vector<Explanation> parts;  // fields that it is made of, those that are 0 left out
  std::vector<End> ends;
};

// A resource made a tenth better, and what the step does: a run of its own.
struct Purchase {
  std::string key, value;
  double change = 0;  // of the step time: -0.02 is 2 % faster
};

// What would narrow the interval: shares of the variance.
struct Narrowing {
  std::string what, remedy;
  double share = 0;
};

struct Summary {
  Explanation step;
  results::StepPath path;
  std::vector<Purchase> purchases;   // the most useful first
  std::vector<Narrowing> narrowing;  // the largest share first
};

// Fills c's modules, of `simulate --json` texts a and b, by running both again.
void AddModules(std::string_view a, std::string_view b, const std::string& measured_database,
                results::Comparison* c);

class Explainer {
 public:
  // `text`: of `simulate --json`. Refused where this version says another step time.
  static Result<Explainer> Create(std::string_view text, const std::string& name,
                                  const std::string& measured_database);
  Explainer(Explainer&&) noexcept;
  Explainer& operator=(Explainer&&) noexcept;
  ~Explainer();

  // "breakdown.overall.exposed_tp_s", "memory.0.total_bytes"; a last part alone where it is unique.
  Result<Explanation> Explain(const std::string& field);
  Result<Summary> Summarise();
  // Time of a step's kernels alone by module, mean over all ranks, ps.
  std::map<std::string, SimTime> ModuleTimes() const;
  // Every numeric field of the result.
  std::vector<std::string> Fields() const;

 private:
  struct State;
  explicit Explainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

std::string ExplanationToText(const Explanation& explanation);
std::string ExplanationToJson(const Explanation& explanation);
// One screen; Explain and the JSON say all of it.
std::string SummaryToText(const Summary& summary);
std::string SummaryToJson(const Summary& summary);

}  // namespace orrery::search
