// A recipe's configuration file as a document: what a command line sets in it, and OmegaConf's
// expressions. Internal to recipes.
#pragma once

#include <string>
#include <string_view>

#include "orrery/formats/tree.h"
#include "orrery/recipes/import.h"

namespace orrery::recipes {

// By the file's ending TOML, JSON or YAML, with the file's overrides in their places.
Result<formats::Document> ParseConfiguration(const File& file);

bool IsYaml(std::string_view path);  // by its ending
// Whether a line of `text` begins with "key:".
bool HasKey(std::string_view text, std::string_view key);

// ${model.hidden_size} from the root, ${.hidden_size} beside the leaf, ${..x} a section above,
// ${multiply:4, ${.hidden_size}} and its kin (NeMo's resolvers). What names nothing in the document
// stays as it is written.
void ResolveExpressions(formats::Document* document);

}  // namespace orrery::recipes
