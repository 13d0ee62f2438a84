// A value that follows from others, in a small language of data files: of families.yaml, where
// `$name` is a key of a config.json, and of row_rules.yaml, where it is what a row of measured runs
// says.
//
//   $num_hidden_layers                 the value of that name
//   $n_head | $num_attention_heads     the first of these that is there
//   $num_key_value_heads | heads       a word is itself, or a name that the data row defines
//   $head_dim | 128, $head_dim | default   `default`: left out, as a job file may
//   ( $a + 255 ) / 256 * $b            whole numbers from 0; also - and %; / rounds down; `a min b`
//   $sliding_window if $use_sliding_window | 0    only where the condition holds
//   none if $position == alibi | rotary
//   $a > 1 and not $b != c or $d       true or false; also <, <=, >=
//   $gpu is H100|H200, $gpu begins H, $words holds 'two words'    text: one of a|b, begins with or
//                                      has one of them
//   blank $dp                          whether nothing is there
//   number $offload                    the first whole number in a text
//   $extra behind etp                  the text behind the first of these words
//   $extra words attn|norm=layernorm   its first words, `+` between them, as far as they are of
//                                      these; `norm` is read as layernorm
//   $modules without mtp|experts       its words, `+` between them, but for these
//   upto $extra                        a text up to its first +, comma, semicolon or blank
//
// Words have blanks between them; parentheses may touch one, quotes hold a text with blanks. A
// missing value makes what is computed of it missing. A condition is false where its value is
// missing, null, false, 0 or empty.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::formats {

struct Expression {
  enum class Kind : std::uint8_t { kName, kField, kLiteral, kPrefix, kBinary };
  Kind kind = Kind::kLiteral;
  std::string text;               // the name, the literal or the operator
  std::vector<Expression> parts;  // operands
};

// `is_field` tells names of the data row from literals. Errors say what is wrong, not where.
Result<Expression> ParseExpression(std::string_view text,
                                   const std::function<bool(std::string_view)>& is_field);

// The names behind `$` that it may read.
std::vector<std::string> NamesIn(const Expression& expression);

// A value with the key that it came from, for errors; no node: it came from no file.
struct Value {
  std::string text;
  bool quoted = false;
  std::string key;
  const Node* node = nullptr;
};

// Where an expression's names are looked up. Nothing: the value is missing.
class Names {
 public:
  virtual ~Names() = default;
  virtual Result<std::optional<Value>> Named(const std::string& name) = 0;
  virtual Result<std::optional<Value>> Field(const std::string& name) = 0;
  // Errors for a value that no alternative has, and one that is of another type.
  virtual Status Missing(std::string_view name) const = 0;
  virtual Status Wrong(const Value& value, std::string_view expected) const = 0;
};

// Nothing: the value is left out. Missing() where a name of the alternatives is missing, and none
// of them has a value.
Result<std::optional<Value>> Evaluate(const Expression& expression, Names* names);
// The same, but nothing where it is missing.
Result<std::optional<Value>> EvaluateIfThere(const Expression& expression, Names* names);
Result<bool> Holds(const Expression& condition, Names* names);

// False where it is missing, false, 0 or empty.
bool Holds(const Node* node);
bool Holds(std::string_view text);

}  // namespace orrery::formats
