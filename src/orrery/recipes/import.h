// What people have becomes a job: launch scripts and configurations of training frameworks.
//
// Every argument is one of four things (table.h): a key of the job, read with others by a rule,
// without effect on what is predicted, or refused by name. What no argument says and the job needs
// (which cluster, how many GPUs) is asked for by name. The job that comes out is read once, so that
// what is handed on is valid.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/job/job.h"
#include "orrery/recipes/table.h"

namespace orrery::recipes {

struct Options {
  std::string dialect;  // a name of Dialects(); empty: by what the files hold
  std::string cluster;  // preset or file
  std::string model;    // preset or config.json, where the recipe names none that is known
  std::int64_t nodes = 0, gpus = 0;
  std::map<std::string, std::string> variables;  // of a script's environment
  std::vector<std::string> leave_out;            // arguments that are passed over, and said so
  std::string folder;                            // of the job: its relative paths start there
  job::ReadOptions read;                         // its `set` goes into the job as well
};

// One argument as it was given.
struct Use {
  std::string argument, value, where;
  Effect effect = Effect::kInert;
  std::string key;  // kJob, kAssumed
  std::string why;  // kInert, kAssumed, kRefused (left out by the user)
};

struct Imported {
  std::string dialect;
  std::vector<Use> uses;
  std::string job_text;  // YAML
  std::string name;      // of the job in messages
  job::Job job;
};

// A key that a command line sets in a configuration: "model.hidden_size" to "4096".
struct Override {
  std::string path, value;
  std::string source;  // the script
  std::int32_t line = 0;
  std::string unknown = {};  // the variable in `value` that the script does not set
};

// A file that was read; what its path ends in says which form it has.
struct File {
  std::string path, text;
  std::vector<Override> overrides = {};
};
Result<Imported> ImportFiles(const std::vector<File>& files, const Options& options);
Result<Imported> Import(const std::vector<std::string>& paths, const Options& options);

// What became of an argument, in words, and all of it as JSON (orrery.import/1).
std::string_view Name(Effect effect);
std::string ToJson(const Imported& imported);

std::span<const Dialect> Dialects();
// How many arguments of each are what, as docs/recipes.md has it.
std::string DialectTable();
// That no recipe knows a file, and what it looks like.
Status UnknownRecipe(std::string_view text, const std::string& path);
// What a file looks like that no recipe reads; empty: like nothing that is known by sight.
std::string LooksLike(std::string_view text, const std::string& path);
// The dialect of a file's text; null: none knows it.
const Dialect* Sniff(std::string_view text, const std::string& path);

}  // namespace orrery::recipes
