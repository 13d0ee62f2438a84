#include "orrery/search/plan/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "orrery/base/schema.h"
#include "orrery/base/text.h"
#include "orrery/formats/section.h"
#include "orrery/job/tables.h"
#include "orrery/workload/plan.h"

namespace orrery::search {
namespace {

using formats::Document;
using formats::Node;

constexpr std::int64_t kMostChunks = 8;       // of vpp: auto
constexpr std::int64_t kMostMicroBatch = 16;  // of micro_batch: auto
constexpr std::int64_t kTokensPerContextRank = 4096;
constexpr const char* kRecomputeLayers = "training.recompute_layers";

// What auto needs to know of the job.
struct Facts {
  workload::Model model;
  cluster::Spec cluster;
  std::int64_t gpus = 0;  // 0: not said
  std::int64_t seq_len = 0, global_batch = 0;
};

const Node* At(const Document& document, std::string_view path) {
  return NodeAt(document.root, path);
}

// Above the ranges of all keys that are asked for; products of two stay in 64 bits.
constexpr std::int64_t kMostNumber = std::int64_t{1} << 31;

// The number at the path, from 0 to kMostNumber, or the first of its open values; 0 where there is
// none.
std::int64_t NumberAt(const Document& document, std::string_view path) {
  const Node* node = At(document, path);
  if (node != nullptr && node->kind == Node::Kind::kList && !node->items.empty()) {
    node = &node->items.front();
  }
  std::int64_t value = 0;
  if (node != nullptr && node->kind == Node::Kind::kScalar) {
    std::from_chars(node->text.data(), node->text.data() + node->text.size(), value);
  }
  return std::clamp<std::int64_t>(value, 0, kMostNumber);
}

Result<Facts> FactsOf(const Template& job) {
  Facts facts;
  ORRERY_ASSIGN_OR_RETURN(facts.model, job::ReadModelTree(job.document, job.folder));
  ORRERY_ASSIGN_OR_RETURN(facts.cluster,
                          job::ReadClusterTree(WithFirstCluster(job.document), job.folder));
  const auto nodes = NumberAt(job.document, "nodes");
  facts.gpus = nodes * facts.cluster.gpus_per_node;
  facts.seq_len = NumberAt(job.document, "training.seq_len");
  facts.global_batch = NumberAt(job.document, "training.global_batch");
  return facts;
}

std::vector<std::string> Divisors(std::int64_t of, std::int64_t most) {
  std::vector<std::string> values;
  for (std::int64_t v = 1; v <= std::min(of, most); ++v) {
    if (of % v == 0) values.push_back(fmt::format("{}", v));
  }
  return values;
}

std::vector<std::string> Doubled(std::int64_t most) {
  std::vector<std::string> values;
  for (std::int64_t v = 1; v <= std::max<std::int64_t>(most, 1); v *= 2) {
    values.push_back(fmt::format("{}", v));
  }
  return values;
}

// The values that auto stands for; an error where the key has none.
Result<std::vector<std::string>> AutoValues(const std::string& key, const Option& option,
                                            const Facts& facts) {
  const std::int64_t gpus = facts.gpus > 0 ? facts.gpus : facts.cluster.gpus_per_node;
  if (key == "parallel.tp") {
    return Divisors(std::min<std::int64_t>(facts.cluster.gpus_per_nvlink_domain, gpus), gpus);
  }
  if (key == "parallel.pp") return Divisors(gpus, facts.model.layers);
  if (key == "parallel.vpp") {
    std::vector<std::string> values;
    for (std::int64_t v = 1; v <= std::min(kMostChunks, facts.model.layers); ++v) {
      values.push_back(fmt::format("{}", v));
    }
    return values;
  }
  if (key == "parallel.cp") {
    return Doubled(std::min(facts.seq_len / kTokensPerContextRank, gpus));
  }
  if (key == "parallel.ep") {
    return Divisors(std::max<std::int64_t>(facts.model.experts.count, 1), gpus);
  }
  if (key == "training.micro_batch") {
    return Doubled(std::min(kMostMicroBatch, std::max<std::int64_t>(facts.global_batch, 1)));
  }
  if (key == kRecomputeLayers) {
    return Doubled(std::max<std::int64_t>(facts.model.layers - 1, 1));
  }
  if (key == "schedule") {
    std::vector<std::string> names;
    for (const workload::ScheduleInfo& info : workload::Schedules()) {
      names.emplace_back(info.name);
    }
    return names;
  }
  if (option.type == OptionType::kBool) return std::vector<std::string>{"false", "true"};
  if (option.type == OptionType::kChoice) {
    std::vector<std::string> values;
    for (const std::string_view choice : Choices(option)) values.emplace_back(choice);
    return values;
  }
  return InvalidInput("{}: auto has no meaning here; give a list of values, such as [1, 2]", key);
}

// A node as `--set` would write it.
Result<std::string> Written(const Node& node) {
  if (node.kind == Node::Kind::kScalar) {
    if (!node.quoted) return node.text;
    return fmt::format("\"{}\"", node.text);
  }
  std::string text;
  if (node.kind == Node::Kind::kList) {
    for (const Node& item : node.items) {
      ORRERY_ASSIGN_OR_RETURN(const std::string one, Written(item));
      text += fmt::format("{}{}", text.empty() ? "" : ", ", one);
    }
    return "[" + text + "]";
  }
  for (const formats::Field& field : node.fields) {
    ORRERY_ASSIGN_OR_RETURN(const std::string one, Written(field.value));
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", field.key, one);
  }
  return "{" + text + "}";
}

bool IsAuto(const Option& option, const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.quoted || node.text != "auto") return false;
  const std::vector<std::string_view> choices = Choices(option);
  return std::find(choices.begin(), choices.end(), "auto") == choices.end();
}

// The open values of a key; none where the file decides it.
Result<std::optional<std::vector<std::string>>> OpenValues(const std::string& key,
                                                           const Option& option, const Node& node,
                                                           const Facts& facts) {
  using Values = std::optional<std::vector<std::string>>;
  if (IsAuto(option, node)) {
    ORRERY_ASSIGN_OR_RETURN(std::vector<std::string> values, AutoValues(key, option, facts));
    return Values(std::move(values));
  }
  if (node.kind == Node::Kind::kScalar) {
    if (option.type != OptionType::kInteger || node.text.find("..") == std::string::npos) {
      return Values();
    }
    ORRERY_ASSIGN_OR_RETURN(std::vector<std::string> values, ParseValues(node.text));
    return Values(std::move(values));
  }
  if (node.kind != Node::Kind::kList || node.items.empty()) return Values();
  const bool of_lists = std::any_of(node.items.begin(), node.items.end(), [](const Node& item) {
    return item.kind == Node::Kind::kList;
  });
  if (option.type == OptionType::kIntegers && !of_lists) return Values();
  std::vector<std::string> values;
  for (const Node& item : node.items) {
    ORRERY_ASSIGN_OR_RETURN(std::string value, Written(item));
    values.push_back(std::move(value));
  }
  return Values(std::move(values));
}

const Option kClusterName{.name = "cluster", .type = OptionType::kText};

// Row of the option table that a key path names; null where it is none.
const Option* OptionOf(std::string_view key) {
  if (key == "cluster" || key == "model") return &kClusterName;
  for (const OptionTable* table : job::Tables()) {
    for (const Option& option : table->options) {
      if (formats::FullName(*table, option.name) == key) return &option;
    }
  }
  return nullptr;
}

// What the job says of a key that is opened for it is not read again: a value that is none must not
// vanish.
Status CheckValue(const Document& document, std::string_view key) {
  const std::size_t dot = key.rfind('.');
  const std::string_view path = dot == std::string_view::npos ? "" : key.substr(0, dot);
  for (const OptionTable* table : job::Tables()) {
    if (table->path != path) continue;
    const Option* const option = FindOption(table->options, key.substr(dot + 1));
    if (option == nullptr || option->type == OptionType::kText) continue;
    Node one = path.empty() ? document.root : *At(document, path);
    std::erase_if(one.fields, [&](const formats::Field& f) { return f.key != option->name; });
    return formats::Section::Read(document, one, *table).TakeStatus();
  }
  return {};
}

class Opener {
 public:
  Opener(OpenJob* open, Facts facts) : open_(*open), facts_(std::move(facts)) {}

  Status File() {
    const Document document = open_.job.document;  // the space is read from the file as it was
    const Node* layers = At(document, kRecomputeLayers);
    if (layers != nullptr && IsAuto(*OptionOf(kRecomputeLayers), *layers)) {
      ORRERY_RETURN_IF_ERROR(Recompute());
    }
    const Node* parallel = document.root.Find("parallel");
    if (parallel != nullptr && parallel->kind == Node::Kind::kScalar && parallel->text == "auto") {
      ORRERY_RETURN_IF_ERROR(Set("parallel={}"));
      ORRERY_RETURN_IF_ERROR(Degrees());
    }
    if (const Node* cluster = document.root.Find("cluster")) {
      ORRERY_RETURN_IF_ERROR(Key("cluster", kClusterName, *cluster, document));
    }
    for (const OptionTable* table : job::Tables()) {
      const Node* section = table->path.empty() ? &document.root : At(document, table->path);
      if (section == nullptr || section->kind != Node::Kind::kMap) continue;
      for (const Option& option : table->options) {
        const Node* node = section->Find(option.name);
        if (node == nullptr) continue;
        ORRERY_RETURN_IF_ERROR(
            Key(formats::FullName(*table, option.name), option, *node, document));
      }
    }
    return {};
  }

  Status Vary(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (equals != std::string::npos && text.substr(equals + 1) == "auto") {
      if (key == "parallel") {
        ORRERY_RETURN_IF_ERROR(Set("parallel={}"));
        return Degrees();
      }
      if (OptionOf(key) == nullptr) {
        return InvalidInput("--vary {}: there is no key of this name", Printable(key, 60));
      }
      if (key == kRecomputeLayers) return Recompute();
      return AddAuto(key);
    }
    ORRERY_ASSIGN_OR_RETURN(Axis axis, ParseVary(text));
    return open_.space.Add(std::move(axis));
  }

  // A finished job: what an engineer would try first, on the GPUs that it has.
  Status Default() {
    open_.by_default = true;
    ORRERY_RETURN_IF_ERROR(KeepSize());
    constexpr const char* kOpened[] = {"parallel.tp",
                                       "parallel.pp",
                                       "parallel.vpp",
                                       "parallel.sequence_parallel",
                                       "training.micro_batch",
                                       "training.recompute",
                                       "parallel.dp",
                                       "parallel.layers_per_stage",
                                       "schedule"};
    for (const char* key : kOpened) {
      const Node* node = At(open_.job.document, key);
      if (node == nullptr) continue;
      ORRERY_RETURN_IF_ERROR(CheckValue(open_.job.document, key));
      ORRERY_ASSIGN_OR_RETURN(const std::string value, Written(*node));
      open_.given_first.push_back(fmt::format("{}={}", key, value));
    }
    ORRERY_RETURN_IF_ERROR(Degrees());
    ORRERY_RETURN_IF_ERROR(AddAuto("training.micro_batch"));
    ORRERY_RETURN_IF_ERROR(AddAuto("training.recompute"));
    for (const char* key : {"parallel.dp", "parallel.layers_per_stage", "schedule"}) {
      if (At(open_.job.document, key) != nullptr) {
        ORRERY_RETURN_IF_ERROR(Set(fmt::format("{}=null", key)));
      }
    }
    return {};
  }

 private:
  Status Set(const std::string& assignment) {
    return formats::ApplySet(assignment, &open_.job.document);
  }

  // A job without `nodes` has as many GPUs as its degrees multiply to; once they are open, `nodes`
  // has to say it.
  Status KeepSize() {
    if (At(open_.job.document, "nodes") != nullptr) return {};
    std::int64_t gpus = NumberAt(open_.job.document, "parallel.dp");
    if (gpus == 0) return {};  // OpenSpace asks for nodes
    for (const char* key : {"parallel.tp", "parallel.pp", "parallel.cp"}) {
      const std::int64_t degree = std::max<std::int64_t>(NumberAt(open_.job.document, key), 1);
      if (degree > kMostNumber / gpus) return {};  // who reads the job refuses it
      gpus *= degree;
    }
    const int host = facts_.cluster.gpus_per_node;
    if (gpus % host != 0) {
      return InvalidInput(
          "{}: nodes is missing: how many may the plan use? its degrees make {} GPUs, hosts have "
          "{}; write nodes: {}",
          open_.job.name(), gpus, host, (gpus + host - 1) / host);
    }
    facts_.gpus = gpus;
    return Set(fmt::format("nodes={}", gpus / host));
  }

  // What `parallel: auto` opens.
  Status Degrees() {
    std::vector<std::string> keys = {"parallel.tp", "parallel.pp", "parallel.vpp",
                                     "parallel.sequence_parallel"};
    if (facts_.seq_len >= 4 * kTokensPerContextRank) keys.emplace_back("parallel.cp");
    if (facts_.model.experts.count > 0) keys.emplace_back("parallel.ep");
    for (const std::string& key : keys) ORRERY_RETURN_IF_ERROR(AddAuto(key));
    return {};
  }

  // Every form of recompute that the job leaves open, full of all layers and of some: keys that
  // only full gives a meaning change together with it.
  Status Recompute() {
    const Option& option = *OptionOf("training.recompute");
    std::vector<std::string> forms = {"none", "selective", "full"};
    if (const Node* node = At(open_.job.document, "training.recompute")) {
      ORRERY_ASSIGN_OR_RETURN(std::optional<std::vector<std::string>> said,
                              OpenValues("training.recompute", option, *node, facts_));
      forms = said ? *std::move(said) : std::vector<std::string>{node->text};
    }
    const Node* method = At(open_.job.document, "training.recompute_method");
    const std::string name = method != nullptr ? method->text : "block";
    Axis axis{.keys = {"training.recompute", "training.recompute_method", kRecomputeLayers},
              .points = {}};
    for (const std::string& form : forms) {
      axis.points.push_back({form, "null", "null"});
      if (form != "full") continue;
      ORRERY_ASSIGN_OR_RETURN(const std::vector<std::string> counts,
                              AutoValues(kRecomputeLayers, *OptionOf(kRecomputeLayers), facts_));
      for (const std::string& layers : counts) {
        if (name != "block" && layers == "1") continue;  // all of them, as above
        axis.points.push_back({form, name, layers});
      }
    }
    return open_.space.Add(std::move(axis));
  }

  Status AddAuto(const std::string& key) {
    ORRERY_ASSIGN_OR_RETURN(std::vector<std::string> values,
                            AutoValues(key, *OptionOf(key), facts_));
    return Add(key, std::move(values));
  }

  Status Key(const std::string& key, const Option& option, const Node& node,
             const Document& document) {
    const std::vector<std::string> varied = open_.space.Keys();  // --vary wins over the file
    if (std::find(varied.begin(), varied.end(), key) != varied.end()) return {};
    Result<std::optional<std::vector<std::string>>> values = OpenValues(key, option, node, facts_);
    if (!values.ok()) return std::move(values).TakeStatus().In(document.Where(node));
    if (!*values) return {};
    return Add(key, **std::move(values)).In(document.Where(node));
  }

  Status Add(const std::string& key, std::vector<std::string> values) {
    Axis axis{.keys = {key}, .points = {}};
    for (std::string& value : values) axis.points.push_back({std::move(value)});
    return open_.space.Add(std::move(axis));
  }

  OpenJob& open_;
  Facts facts_;
};

}  // namespace

const Node* NodeAt(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (node != nullptr && !path.empty()) {
    const std::size_t dot = path.find('.');
    node = node->kind == Node::Kind::kMap ? node->Find(path.substr(0, dot)) : nullptr;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return node;
}

Document WithFirstCluster(Document document) {
  if (Node* cluster = document.root.Find("cluster");
      cluster != nullptr && cluster->kind == Node::Kind::kList && !cluster->items.empty()) {
    Node first = cluster->items.front();
    *cluster = std::move(first);
  }
  return document;
}

Result<OpenJob> OpenSpace(Template job, const std::vector<std::string>& vary) {
  ORRERY_ASSIGN_OR_RETURN(Facts facts, FactsOf(job));
  OpenJob open;
  open.job = std::move(job);
  Opener opener(&open, std::move(facts));
  for (const std::string& text : vary) ORRERY_RETURN_IF_ERROR(opener.Vary(text).In("--vary"));
  ORRERY_RETURN_IF_ERROR(opener.File());
  if (open.space.axes().empty()) ORRERY_RETURN_IF_ERROR(opener.Default());
  if (At(open.job.document, "nodes") == nullptr &&
      At(open.job.document, "parallel.dp") == nullptr) {
    const auto keys = open.space.Keys();
    const bool sized = std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
      return key == "nodes" || key == "parallel.dp";
    });
    if (!sized) {
      return InvalidInput("{}: nodes is missing: how many may the plan use? write nodes: 32",
                          open.job.name());
    }
  }
  return open;
}

}  // namespace orrery::search
