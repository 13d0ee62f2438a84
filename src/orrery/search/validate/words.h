// Words of tables of measured runs that mean one of ours: data/words.yaml; a user's file adds rows
// before it (docs/formats/data.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/rows.h"

namespace orrery::search {

class Words {
 public:
  // data/words.yaml, embedded.
  static const Words& BuiltIn();

  // The rows of a file, before those that are there; `file` stands for it in errors.
  Status Add(std::string_view text, const std::string& file);

  // What a cell means; the cell itself where no row is about it. Lives as long as both.
  std::string_view Meaning(std::string_view column, std::string_view cell) const;

 private:
  struct Word {
    std::string column, words, means;  // words: "a|b"
  };

  formats::DataTable rows_{"word"};
  std::vector<Word> words_;
};

}  // namespace orrery::search
