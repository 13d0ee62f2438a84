// Rows of a sweep kept while it runs, so that one that was cut short goes on where it ended.
//
// Text, one JSON document a line (docs/formats/sweep.md): the first says of which sweep it is, each
// other one is a row. A last line without its end was cut short and is dropped.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "orrery/search/sweep/sweep.h"

namespace orrery::search {

class Journal {
 public:
  // Creates the file, or reads the rows of the same sweep and shard that it holds.
  static Result<Journal> Open(const std::string& path, const Sweep& sweep);
  std::vector<SweepRow> TakeRows() { return std::move(rows_); }  // by point
  Status Append(const SweepRow& row, const std::vector<std::string>& keys);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<SweepRow> rows_;
};

}  // namespace orrery::search
