#include <algorithm>

#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using formats::Field;
using formats::Node;

bool IsTrue(const Node& node) {
  return node.text == "true" || node.text == "True" || node.text == "yes" || node.text == "on" ||
         node.text == "1";
}

void Walk(const Node& node, const std::string& path, std::vector<Leaf>* leaves) {
  if (node.kind != Node::Kind::kMap || (node.fields.empty() && !path.empty())) {
    leaves->push_back({path, &node});
    return;
  }
  for (const Field& field : node.fields) {
    Walk(field.value, path.empty() ? field.key : path + "." + field.key, leaves);
  }
}

}  // namespace

std::vector<Leaf> Leaves(const Node& root) {
  std::vector<Leaf> leaves;
  Walk(root, "", &leaves);
  return leaves;
}

bool AddLeaf(const formats::Document& document, const Leaf& leaf, const Row* row,
             Reading* reading) {
  const Node& node = *leaf.node;
  if (node.kind == Node::Kind::kNull) return true;  // as if it were not there
  if (row == nullptr) return false;
  const bool empty = node.kind == Node::Kind::kList     ? node.items.empty()
                     : node.kind == Node::Kind::kScalar ? node.text.empty()
                                                        : false;
  if (row->effect == Effect::kRefused && empty) return true;
  Given given{.name = leaf.path, .row = row, .where = document.Where(node)};
  const auto add = [&](const Node& item) {
    given.values.push_back({.text = item.text, .line = item.line});
  };
  if (row->flag()) {
    // A flag that turns something off is given where its field is false.
    given.on = IsTrue(node) != (row->takes == "off");
    if (given.name.starts_with("--")) given.on = IsTrue(node);
    if (node.text == "auto") add(node);  // filled in by what starts the framework
  } else if (node.kind == Node::Kind::kList) {
    for (const Node& item : node.items) add(item);
  } else if (node.kind == Node::Kind::kScalar) {
    add(node);
  }
  reading->Add(std::move(given));
  return true;
}

void AddLeaves(const formats::Document& document, const Node& root, const Tables& tables,
               Reading* reading) {
  for (const Leaf& leaf : Leaves(root)) {
    const Row* row = FindRow(tables, leaf.path);
    for (std::size_t i = 0; row == nullptr && i < tables.size(); ++i) {
      row = tables[i]->FindField(leaf.path);
    }
    if (!AddLeaf(document, leaf, row, reading)) {
      reading->AddUnknown(leaf.path, document.Where(*leaf.node), tables);
    }
  }
}

}  // namespace orrery::recipes
