// Internal to the text form: one line cut into words, strings and fields.
//
//   word  "a string"  key=value  key="a string"
// Inside quotes \" \\ and \xNN stand for what they say. A line's tokens are used up by its reader;
// what is left over is an error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"

namespace orrery::graph {

class TextLine {
 public:
  struct Token {
    std::string_view key;  // of a field
    std::string value;
    bool field = false;
    bool quoted = false;
    bool used = false;
  };

  // Cuts `line`; it must outlive the tokens. Blank lines and those that begin with # have no
  // tokens.
  Status Cut(std::string_view line);
  bool empty() const { return tokens_.empty(); }

  // The next word or string that nobody took; null if there is none.
  const Token* Next();
  // The field of that key; null if the line does not have it.
  const Token* Field(std::string_view key);
  // An error if something was not taken.
  Status Done() const;

 private:
  Status CutValue(std::string_view line, std::size_t* at, Token* token) const;

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
};

}  // namespace orrery::graph
