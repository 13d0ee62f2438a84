#include "orrery/recipes/wrappers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/base/units.h"
#include "orrery/formats/tree.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"

namespace orrery::recipes {
namespace {

using formats::Field;
using formats::Node;

std::string ScalarOf(const Node* node) {
  return node != nullptr && node->kind == Node::Kind::kScalar ? node->text : std::string();
}

std::int64_t WholeOf(const Node* node) {
  const Result<std::int64_t> value = ParseInteger(ScalarOf(node));
  return value.ok() && *value > 0 ? *value : 0;
}

// "H100:8", "{H100:8, A100:8}" by its first, "H100".
std::int64_t GpusOf(const std::string& accelerator) {
  const std::size_t colon = accelerator.find(':');
  if (colon == std::string::npos) return 1;
  const std::string count = accelerator.substr(
      colon + 1, accelerator.find_first_not_of("0123456789", colon + 1) - colon - 1);
  const Result<std::int64_t> value = ParseInteger(count);
  return value.ok() ? *value : 0;
}

std::int64_t GpusOf(const Node* accelerators) {
  if (accelerators == nullptr) return 0;
  if (accelerators->kind == Node::Kind::kScalar) return GpusOf(accelerators->text);
  if (accelerators->kind == Node::Kind::kList && !accelerators->items.empty()) {
    return GpusOf(&accelerators->items.front());
  }
  if (accelerators->kind != Node::Kind::kMap || accelerators->fields.empty()) return 0;
  const Field& first = accelerators->fields.front();
  const std::int64_t count = WholeOf(&first.value);
  return count > 0 ? count : GpusOf(first.key);
}

// As a script whose lines have the file's numbers.
File ScriptOf(const File& file, const std::string& text, std::int32_t line, bool block) {
  const std::int32_t above = std::max(0, line - (block ? 0 : 1));
  return {file.path + ":run.sh", std::string(static_cast<std::size_t>(above), '\n') + text + "\n"};
}

void AddScript(const File& file, const Node* node, Wrapped* wrapped) {
  if (node == nullptr) return;
  if (node->kind == Node::Kind::kScalar && !node->text.empty()) {
    wrapped->scripts.push_back(
        ScriptOf(file, node->text, node->line, node->text.find('\n') != std::string::npos));
  } else if (node->kind == Node::Kind::kList) {  // dstack: a command a line
    std::string text;
    for (const Node& item : node->items) text += ScalarOf(&item) + "\n";
    wrapped->scripts.push_back(ScriptOf(file, text, node->line, false));
  }
}

// A map, or a list of {name, value} or "NAME=VALUE".
void AddVariables(const Node* node, Wrapped* wrapped) {
  if (node == nullptr) return;
  for (const Field& field : node->fields) {
    if (field.value.kind == Node::Kind::kScalar) {
      wrapped->variables.emplace(field.key, field.value.text);
    }
  }
  for (const Node& item : node->items) {
    const std::string name = ScalarOf(item.Find("name"));
    const Node* value = item.Find("value");
    if (!name.empty() && value != nullptr) {
      wrapped->variables.emplace(name, ScalarOf(value));
    } else if (const std::size_t equals = item.text.find('='); equals != std::string::npos) {
      wrapped->variables.emplace(item.text.substr(0, equals), item.text.substr(equals + 1));
    }
  }
}

bool IsSkyPilot(std::string_view text) {
  return HasKey(text, "run") && (HasKey(text, "resources") || HasKey(text, "num_nodes")) &&
         !HasKey(text, "apiVersion") && !HasKey(text, "trainer");
}

// Folders beside the file that the task finds elsewhere: their paths in the command are the file's.
void MountFolders(const Node* mounts, std::string* text) {
  if (mounts == nullptr) return;
  for (const Field& field : mounts->fields) {
    const std::string local = ScalarOf(&field.value);
    const bool beside = !local.empty() && local.find("://") == std::string::npos && local[0] != '/';
    if (!beside || field.key.size() < 2) continue;
    const std::string to = local.ends_with('/') ? local : local + "/";
    const std::string from = field.key.ends_with('/') ? field.key : field.key + "/";
    for (std::size_t at = text->find(from); at != std::string::npos;) {
      const bool starts = at == 0 || (*text)[at - 1] == ' ' || (*text)[at - 1] == '=' ||
                          (*text)[at - 1] == '"' || (*text)[at - 1] == '\'';
      if (starts) text->replace(at, from.size(), to);
      at = text->find(from, at + (starts ? to.size() : from.size()));
    }
  }
}

Wrapped SkyPilot(const File& file, const Node& root) {
  Wrapped wrapped{.kind = "SkyPilot's task"};
  AddScript(file, root.Find("run"), &wrapped);
  for (File& script : wrapped.scripts) MountFolders(root.Find("file_mounts"), &script.text);
  const Node* resources = root.Find("resources");
  wrapped.gpus_per_node = GpusOf(resources == nullptr ? nullptr : resources->Find("accelerators"));
  wrapped.nodes = std::max<std::int64_t>(1, WholeOf(root.Find("num_nodes")));
  AddVariables(root.Find("envs"), &wrapped);
  wrapped.variables.emplace("SKYPILOT_NUM_NODES", std::to_string(wrapped.nodes));
  wrapped.variables.emplace("SKYPILOT_NODE_RANK", "0");
  if (wrapped.gpus_per_node > 0) {
    wrapped.variables.emplace("SKYPILOT_NUM_GPUS_PER_NODE", std::to_string(wrapped.gpus_per_node));
  }
  return wrapped;
}

bool IsDstack(std::string_view text) {
  return HasKey(text, "commands") && HasKey(text, "type") && HasKey(text, "resources");
}

Wrapped Dstack(const File& file, const Node& root) {
  Wrapped wrapped{.kind = "dstack's task"};
  AddScript(file, root.Find("commands"), &wrapped);
  const Node* resources = root.Find("resources");
  const Node* gpu = resources == nullptr ? nullptr : resources->Find("gpu");
  if (gpu != nullptr && gpu->kind == Node::Kind::kMap) {
    wrapped.gpus_per_node = WholeOf(gpu->Find("count"));
  } else if (gpu != nullptr) {  // "H100:8", "80GB:8", "24GB"; parts in any order
    const std::string text = ScalarOf(gpu);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(':', at), text.size());
      const std::string part = text.substr(at, end - at);
      if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
        wrapped.gpus_per_node = GpusOf(":" + part);
      }
      at = end + 1;
    }
    if (wrapped.gpus_per_node == 0) wrapped.gpus_per_node = 1;
  }
  wrapped.nodes = std::max<std::int64_t>(1, WholeOf(root.Find("nodes")));
  AddVariables(root.Find("env"), &wrapped);
  wrapped.variables.emplace("DSTACK_NODES_NUM", std::to_string(wrapped.nodes));
  wrapped.variables.emplace("DSTACK_NODE_RANK", "0");
  if (wrapped.gpus_per_node > 0) {
    wrapped.variables.emplace("DSTACK_GPUS_PER_NODE", std::to_string(wrapped.gpus_per_node));
    wrapped.variables.emplace("DSTACK_GPUS_NUM",
                              std::to_string(wrapped.nodes * wrapped.gpus_per_node));
  }
  return wrapped;
}

bool IsMosaicRun(std::string_view text) {
  return HasKey(text, "command") && HasKey(text, "compute") &&
         (HasKey(text, "image") || HasKey(text, "integrations"));
}

// Its `parameters` lie as a file under /mnt/config, which the command trains by.
Wrapped MosaicRun(const File& file, const Node& root, std::string_view text) {
  Wrapped wrapped{.kind = "MosaicML's run"};
  AddScript(file, root.Find("command"), &wrapped);
  const Node* compute = root.Find("compute");
  wrapped.gpus = WholeOf(compute == nullptr ? nullptr : compute->Find("gpus"));
  const Node* parameters = root.Find("parameters");
  if (parameters == nullptr || parameters->fields.empty()) return wrapped;
  // The section as it is written, moved to the left; its lines keep their numbers.
  std::string lines;
  std::size_t indent = 0;
  bool inside = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = TakeLine(&rest);
    const bool top = !line.empty() && line[0] != ' ' && line[0] != '#';
    if (top) inside = line.starts_with("parameters:");
    if (inside && !top && indent == 0 && line.find_first_not_of(' ') != std::string_view::npos &&
        line[line.find_first_not_of(' ')] != '#') {
      indent = line.find_first_not_of(' ');
    }
    const std::size_t first = line.find_first_not_of(' ');
    const bool says = first != std::string_view::npos && first >= indent && line[first] != '#';
    if (inside && !top && indent > 0 && says) lines += line.substr(indent);
    lines += '\n';
  }
  wrapped.configuration = File{file.path + ":parameters.yaml", std::move(lines)};
  return wrapped;
}

// A word for the shell, in quotes where it needs them.
std::string Quoted(const std::string& word) {
  const bool plain =
      !word.empty() && word.find_first_of(" \t\n'\"\\;&|<>*?()[]{}~#") == std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// What of a manifest counts: containers with their commands, replicas, GPUs a pod.
class Manifest {
 public:
  Manifest(const File& file, Wrapped* wrapped) : file_(file), wrapped_(wrapped) {}

  void Read(const Node& root) {
    if (const std::string kind = ScalarOf(root.Find("kind")); !kind.empty()) {
      wrapped_->kind = fmt::format("Kubernetes' {}", kind);
    }
    Walk(root, 1);
    if (wrapped_->nodes == 0 && wrapped_->gpus_per_node > 0) wrapped_->nodes = 1;
  }

 private:
  static std::int64_t GpusIn(const Node& node) {
    std::int64_t gpus = 0;
    for (const Field& field : node.fields) {
      const bool gpu = field.key == "nvidia.com/gpu" || field.key == "amd.com/gpu";
      gpus = std::max(gpus, gpu ? WholeOf(&field.value) : GpusIn(field.value));
    }
    return gpus;
  }

  void Walk(const Node& node, std::int64_t replicas) {
    if (node.kind == Node::Kind::kList) {
      for (const Node& item : node.items) Walk(item, replicas);
      return;
    }
    if (node.kind != Node::Kind::kMap) return;
    if (const std::string entry = ScalarOf(node.Find("entrypoint")); !entry.empty()) {
      AddScript(file_, node.Find("entrypoint"), wrapped_);
    }
    const std::int64_t own =
        std::max({WholeOf(node.Find("replicas")), WholeOf(node.Find("numNodes")),
                  WholeOf(node.Find("parallelism")), WholeOf(node.Find("completions"))});
    const std::int64_t each = own > 0 ? replicas * own : replicas;
    const bool container =
        node.Find("image") != nullptr || node.Find("resourcesPerNode") != nullptr;
    if (container && (node.Find("command") != nullptr || node.Find("args") != nullptr)) {
      Container(node, each);
      return;
    }
    for (const Field& field : node.fields) {
      // A RayCluster's own containers run no training.
      if (field.key != "initContainers") Walk(field.value, each);
    }
  }

  void Container(const Node& node, std::int64_t replicas) {
    std::vector<const Node*> words;
    for (const std::string_view key : {"command", "args"}) {
      const Node* list = node.Find(key);
      if (list == nullptr) continue;
      if (list->kind == Node::Kind::kScalar) words.push_back(list);
      for (const Node& item : list->items) words.push_back(&item);
    }
    const auto shell = [](const std::string& word) {
      return word.ends_with("bash") || word.ends_with("/sh") || word == "sh";
    };
    AddVariables(node.Find("env"), wrapped_);
    const Node* text = nullptr;  // behind bash -c
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string& before = words[i - 1]->text;
      if (shell(words.front()->text) && before.starts_with('-') && before.ends_with('c')) {
        text = words[i];
      }
    }
    if (text == nullptr && words.size() == 1) text = words.front();
    if (text != nullptr) {
      AddScript(file_, text, wrapped_);
    } else if (!words.empty()) {
      std::string line;
      for (const Node* word : words) line += Quoted(word->text) + " ";
      wrapped_->scripts.push_back(ScriptOf(file_, line, words.front()->line, false));
    }
    const std::int64_t gpus = GpusIn(node);
    if (gpus == 0) return;
    wrapped_->gpus_per_node = std::max(wrapped_->gpus_per_node, gpus);
    wrapped_->nodes += replicas;
  }

  const File& file_;
  Wrapped* wrapped_;
};

// Documents of a manifest stand between lines of dashes; each is read where it stands.
std::vector<std::string> Documents(std::string_view text) {
  std::vector<std::string> documents(1);
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::string_view one = TakeLine(&text);
    if (one.starts_with("---")) {
      documents.emplace_back(line, '\n');
    } else {
      (documents.back() += one) += '\n';
    }
  }
  return documents;
}

}  // namespace

Result<std::optional<Wrapped>> Unwrap(const File& file) {
  if (!IsYaml(file.path)) return std::optional<Wrapped>();
  const std::string_view text = file.text;
  const bool manifest = HasKey(text, "apiVersion") && HasKey(text, "kind");
  if (manifest) {
    Wrapped wrapped;
    for (const std::string& one : Documents(file.text)) {
      if (one.find_first_not_of(" \n") == std::string::npos) continue;
      ORRERY_ASSIGN_OR_RETURN(const formats::Document document, formats::ParseYaml(one, file.path));
      const std::string kind = ScalarOf(document.root.Find("kind"));
      if (kind == "Service" || kind == "ConfigMap" || kind.starts_with("PersistentVolume"))
        continue;
      Manifest(file, &wrapped).Read(document.root);
    }
    if (wrapped.scripts.empty()) return std::optional<Wrapped>();
    return std::optional(std::move(wrapped));
  }
  const bool sky = IsSkyPilot(text), dstack = IsDstack(text), mosaic = IsMosaicRun(text);
  if (!sky && !dstack && !mosaic) return std::optional<Wrapped>();
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          formats::ParseYaml(file.text, file.path));
  Wrapped wrapped = sky      ? SkyPilot(file, document.root)
                    : dstack ? Dstack(file, document.root)
                             : MosaicRun(file, document.root, text);
  if (wrapped.scripts.empty() && !wrapped.configuration) return std::optional<Wrapped>();
  return std::optional(std::move(wrapped));
}

}  // namespace orrery::recipes
