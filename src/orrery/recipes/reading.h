// The arguments of one recipe on their way into a draft: what every dialect does alike.
//
// Problems are collected, not thrown: a user sees all of them at once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/job/draft.h"
#include "orrery/recipes/import.h"
#include "orrery/recipes/shell.h"
#include "orrery/recipes/table.h"
#include "orrery/workload/model.h"

namespace orrery::recipes {

using job::Draft;

// Of Options::leave_out: all arguments that no table knows.
inline constexpr std::string_view kUnknown = "unknown";

struct Given {
  std::string name;  // as written
  const Row* row = nullptr;
  std::vector<Word> values;
  bool on = true;     // of a flag: what the framework would do is what it says; false: the opposite
  std::string where;  // "train.sh:12"
};

// How many GPUs the recipe's launcher starts; 0: not said.
struct Launch {
  std::int64_t nodes = 0, gpus_per_node = 0, gpus = 0;
  std::string unknown;       // "$SLURM_NNODES": what stood where a number was due
  bool whole_hosts = false;  // a process for each GPU that a host has (torchrun's "gpu")
};

class Reading {
 public:
  // Of an argument that several tables have the first one's row counts.
  Reading(Tables tables, const Options& options, std::string file)
      : tables_(std::move(tables)),
        options_(options),
        file_(std::move(file)),
        draft_(file_ + " (imported)") {}

  // A row of a rule with a key stands for the argument of another table that the key names.
  void Add(Given given);
  // As if `argument` of the tables had been given where `name` stands.
  void AddAs(std::string_view argument, std::string name, std::string value, std::string where);
  // A name that none of `tables` has is a problem, with the nearest that they have.
  void AddUnknown(const std::string& name, const std::string& where, const Tables& tables);
  // Every argument but of effect `rule`, which come after.
  void Translate();

  // What rules ask. A value that is not given is the table's fallback; one that cannot be read is a
  // problem, and the fallback.
  const Given* Find(std::string_view argument);  // null: not given
  bool Has(std::string_view argument) { return Find(argument) != nullptr; }
  bool On(std::string_view argument);  // a flag that is given
  std::optional<std::int64_t> Whole(std::string_view argument);
  double Real(std::string_view argument, double fallback);
  std::string Text(std::string_view argument);
  // Text, but empty where a variable in it is not set.
  std::string TextIfKnown(std::string_view argument);
  std::vector<std::string> Texts(std::string_view argument);  // all its values
  std::string Where(std::string_view argument) const;
  // A rule that says no to what an argument says.
  void Refuse(std::string_view argument, std::string why);
  // What is taken for what the recipe does not say (`why`), unless the user sets the key.
  void Suppose(std::string_view argument, std::string_view why, std::string_view key);
  void Problem(std::string text) { problems_.push_back(std::move(text)); }
  // What the recipe does not say.
  void Missing(std::string text) { missing_.push_back(std::move(text)); }

  // The plan's size from the launcher and the options: parallel.dp, or `nodes`. Problems where they
  // do not fit the plan.
  void SetSize(const Launch& launch);
  // The job says so many nodes, from which parallel.dp follows; 0: it says parallel.dp, as where
  // the file itself does.
  void SayNodes(std::int64_t nodes) { nodes_ = nodes; }

  Draft& draft() { return draft_; }
  // What a node of the cluster has; 0: there is no such cluster, and reading the job says so.
  std::int64_t ClusterGpusPerNode() const;
  // The model as drafted; nullopt: it is not known yet, or wrong, which reading the job says.
  std::optional<workload::Model> Model() const;
  // A path as a job in the options' folder has it; a name that is no file's stays.
  std::string FromJob(const std::string& path) const;
  bool IsSet(std::string_view key) const;                            // by --set
  std::optional<std::int64_t> SetWhole(std::string_view key) const;  // what it is set to
  const Options& options() const { return options_; }
  const std::string& file() const { return file_; }
  const std::set<std::string, std::less<>>& asked() const { return asked_; }

  // The draft as a job that was read, or all problems.
  Result<Imported> Finish(const std::string& dialect);

 private:
  std::int64_t WholeNodes(const Launch& launch, std::int64_t nodes, std::int64_t gpus) const;
  // Takes as many hosts of each rack (NVL72) as keep expert- and tensor-parallel groups whole,
  // where the job needs several racks. False: it changed nothing.
  bool FitRacks(const job::Job& job);
  void TranslateOne(const Given& given);
  // Of a row whose named values change nothing: whether it has one; nullopt: its value is unknown.
  std::optional<bool> Harmless(const Given& given);
  // The argument that a row stands for, in its words; false: it is refused, or as if not there.
  bool Mean(Given* given);
  void NotModelled(const Given& given, const Row& row, const std::string& value);
  bool LeftOut(const Given& given) const;
  // The value as text; a problem where a variable is not set.
  std::optional<std::string> Value(const Given& given);

  const Row* FindRow(std::string_view argument) const;

  Tables tables_;
  const Options& options_;
  std::string file_;
  std::vector<Given> given_;
  // By the row's argument; by the name as written where a row stands for several.
  std::map<std::string, std::size_t, std::less<>> index_;
  std::set<std::string, std::less<>> asked_;
  std::vector<Use> uses_;
  std::vector<std::string> problems_, missing_;
  std::int64_t nodes_ = 0;
  std::size_t unknown_ = 0;  // problems that are arguments of no table
  Draft draft_;
};

// What is multiplied, or the largest number where that is more: reading the job refuses it.
std::int64_t Product(std::initializer_list<std::int64_t> factors);
// The next multiple; a value or a multiple that no model has stays as it is.
std::int64_t RoundUp(std::int64_t value, std::int64_t multiple);

// A file that a recipe names: from here, from the recipe's folder, or from one above it; nullopt:
// there is none.
Result<std::optional<File>> OpenNamed(const std::string& name, const std::string& recipe);

}  // namespace orrery::recipes
