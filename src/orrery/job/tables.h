// The option tables of all stages, joined: the keys of a job file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"

namespace orrery::job {

const OptionTable& TopOptions();       // the keys at the top of a job file
const OptionTable& JobEntryOptions();  // an entry of `jobs`
const OptionTable& InterferenceOptions();
// All tables, in the order in which a job file is written.
std::vector<const OptionTable*> Tables();

// The option of "section.key"; an error where no section of a job has it.
Result<const Option*> FindKey(std::string_view path);

// JSON Schema (draft 2020-12) of the job file, for editors. One document.
std::string JobSchema();
// Two lines a key that begins with `prefix`: name, what it takes, default; meaning.
std::string KeyList(const OptionTable& table, std::string_view prefix = "");
// docs/formats/job.md's table of keys.
std::string KeyTable();

}  // namespace orrery::job
