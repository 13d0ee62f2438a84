// Families of models as their Hugging Face config.json describes them: data/families.yaml, with a
// row for each model_type, and data/config_keys.yaml, with a row for each key that no family reads.
// Users' files add rows to both (docs/formats/data.md).
//
// A family's row has the keys of a job file's `model`; its values say where a config.json has them
// (formats/expression.h), a list stands for the largest of its values. Names that begin with '_'
// are the row's own. Besides:
//   require          {key: value or list}: any other value is refused; $other: that key's value;
//                    $layer: a list whose items are the numbers of the layers
//   refuse           {key: reason}: where the key holds (neither null, false, 0 nor empty)
//   without_effect   {key: reason}: keys that change nothing for this family
//   not_modelled     the reason why no model of the family is read; nothing else counts then
//   text_config      the type of the part of that name; the file itself where there is none
//   vision_config    the type of the part of that name, whose parameters are said, not counted
//   attention_by     {key, words}: a word for each layer, which words make full, window or mamba
//   feed_forward_by  {key, words}: the same, dense or experts
//   pattern_by       {key, words}: the same, a letter of `pattern`
//   window_from      the first layer (from 0) that has the window
//   dense_at         keys with numbers of layers (from 0), as a list or a text with commas
//   experts_at       the same
//   mamba_at         the same of layers that have a mixer, counted from 1
//   borrowing_layers how many layers at the end have keys of earlier ones
//   borrowing_ffn_hidden   the width of their feed-forward
//   sizes_by         {heads, kv_heads, head_dim, ffn_hidden, compress: key of a list with a number
//                    a layer}; `KEY of MAP`: of a list of names, whose numbers the map has, 0
//                    where it has none; alternatives behind ` | `
//   blocks           the key of a list of searched layers (blocks.h)
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/formats/expression.h"
#include "orrery/formats/rows.h"

namespace orrery::workload::families {

using formats::Expression;
using formats::Value;

// Where a row's expressions are looked up: the keys of a file, and the row's own values.
class Scope : public formats::Names {
 public:
  virtual const formats::Node* Key(std::string_view dotted) = 0;  // null: missing, or null
};

// A word a layer, of the file and what it stands for.
struct LayerWords {
  std::vector<std::string> keys;  // the first that the file has
  std::vector<std::pair<std::string, std::string>> words;
};

struct Family {
  std::string type;
  std::string description;  // one line: where its layers are said, or why it is refused
  std::string not_modelled, text_type, vision_type;
  std::map<std::string, std::vector<Expression>, std::less<>> values;  // several: the largest
  std::vector<std::pair<std::string, std::vector<std::string>>> required;
  std::vector<std::pair<std::string, std::string>> refused, without_effect;
  LayerWords attention, feed_forward, pattern;
  std::vector<std::string> dense_at, experts_at, mamba_at;
  struct Sizes {
    std::string size, key, map;  // map: of the list's names; empty: it has numbers
  };
  std::vector<Sizes> sizes_by;  // of one size the first whose key the file has
  std::string blocks;

  bool Reads(std::string_view key) const;  // a key at the top of the file
  std::vector<std::string> Keys() const;   // all of these
};

// A key that changes no shape.
struct InertKey {
  bool costs = false;  // time or memory that is not counted
  std::string why;
};

class Families {
 public:
  // What is embedded in the binary.
  static const Families& BuiltIn();

  // The rows of families.yaml and config_keys.yaml; `file` stands for the text in errors.
  Status Add(std::string_view text, const std::string& file);
  Status AddKeys(std::string_view text, const std::string& file);

  const Family* Find(std::string_view type) const;
  const InertKey* FindKey(std::string_view key) const;
  std::vector<std::string_view> types() const;  // that are modelled
  const std::deque<Family>& all() const { return families_; }
  std::vector<std::string_view> keys() const;  // of config_keys.yaml

 private:
  formats::DataTable rows_{"family"}, key_rows_{"key of a config.json"};
  std::deque<Family> families_;
  std::map<std::string, InertKey, std::less<>> keys_;
};

}  // namespace orrery::workload::families
