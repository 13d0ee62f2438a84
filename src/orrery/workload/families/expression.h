// What a family's row says of one value: where a config.json has it, in a small language.
//
//   $num_hidden_layers                 the key's value; the file must have it
//   $n_head | $num_attention_heads     the first of these that the file has
//   $num_key_value_heads | heads       heads: the row's own value of that name
//   $head_dim | 128, $head_dim | default   a literal; `default`: left out, as a job file may
//   $n_shared_experts * $moe_intermediate_size, $max_position_embeddings + 2
//   $image_size / $patch_size          rounded down
//   $alibi.slopes                      a key within a map
//   $layer_types.length                how many items a list has
//   not $no_bias | false
//   $sliding_window if $use_sliding_window | 0
//   none if $position_embedding_type == alibi | rotary
//
// An alternative whose key the file leaves out, or has as null, or whose condition does not hold,
// is passed over. A list of equal items, one a layer, stands for its item. A condition is false
// where its value is missing, null, false, 0 or empty. Products, sums and quotients run from
// left to right.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/base/status.h"
#include "orrery/formats/tree.h"

namespace orrery::workload::families {

struct Term {
  enum class Kind : std::uint8_t { kKey, kField, kLiteral };
  Kind kind = Kind::kLiteral;
  std::string text;
  bool negated = false;
};

struct Alternative {
  std::vector<Term> terms;
  std::string operators;  // '*', '+' or '/' before each term but the first
  std::optional<Term> condition;
  std::string equals;  // of the condition; empty: it need only hold
};

struct Expression {
  std::vector<Alternative> alternatives;
  // The keys of the file that it may read, dotted.
  std::vector<std::string> Keys() const;
};

// `is_field` tells names of the row from literals. Errors say what is wrong, not where.
Result<Expression> ParseExpression(std::string_view text,
                                   const std::function<bool(std::string_view)>& is_field);

// A value with the key that it came from, for errors; no node: a literal.
struct Value {
  std::string text;
  bool quoted = false;
  std::string key;
  const formats::Node* node = nullptr;
};

// Where an expression's names are looked up.
class Scope {
 public:
  virtual ~Scope() = default;
  virtual const formats::Node* Key(std::string_view dotted) = 0;  // null: missing, or null
  virtual Result<std::optional<Value>> Field(const std::string& name) = 0;
  virtual Status Missing(std::string_view key) const = 0;
  virtual Status Wrong(const Value& value, std::string_view expected) const = 0;
};

// Nothing: the value is left out.
Result<std::optional<Value>> Evaluate(const Expression& expression, Scope* scope);

// False where it is missing, false, 0 or empty.
bool Holds(const formats::Node* node);
bool Holds(std::string_view text);

}  // namespace orrery::workload::families
