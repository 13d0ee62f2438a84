// OLMo-core's training scripts (AI2, OLMo 2 and 3): Python that builds dataclasses, read without
// running it. The dataclasses' fields become keys by their dotted paths
// (train_module.dp_config.name); what one says alone stands in data/recipes/olmo_core.csv.
// Conditions on the cluster are not followed. Source of defaults and meaning: allenai/OLMo-core
// fa6c501, src/olmo_core/internal (experiment.py), train/train_module/transformer,
// distributed/parallel, nn/transformer/config.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/python_document.h"
#include "orrery/recipes/python_file.h"

namespace orrery::recipes {
namespace {

using Kind = PythonValue::Kind;

bool IsNameLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  for (std::size_t at = text->find(from); at != std::string::npos;
       at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

// Functions lose their parameters, so that they can be asked for what they return: "def f(common:
// C) -> X:" as "def f():", lines kept.
void DropParameters(std::string* text) {
  for (std::size_t at = text->find("def "); at != std::string::npos; at = text->find("def ", at)) {
    const bool begins = at == 0 || (*text)[at - 1] == '\n';
    const std::size_t open = text->find('(', at);
    at += 4;
    if (!begins || open == std::string::npos) continue;
    int depth = 0;
    std::size_t close = open;
    for (; close < text->size(); ++close) {
      depth += (*text)[close] == '(' ? 1 : (*text)[close] == ')' ? -1 : 0;
      if (depth == 0) break;
    }
    const std::size_t end = text->find(':', close);
    if (close >= text->size() || end == std::string::npos) return;
    const auto lines = std::count(text->begin() + static_cast<std::ptrdiff_t>(open),
                                  text->begin() + static_cast<std::ptrdiff_t>(end), '\n');
    text->replace(open, end + 1 - open, "():" + std::string(static_cast<std::size_t>(lines), '\n'));
  }
}

// "opts.sequence_length or X": what stands behind counts where the command says nothing.
void DropOptions(std::string* text) {
  for (std::size_t at = text->find("opts."); at != std::string::npos;
       at = text->find("opts.", at)) {
    std::size_t end = at;
    while (end < text->size() && IsNameLetter((*text)[end])) ++end;
    if (text->substr(end, 4) == " or ") {
      text->erase(at, end + 4 - at);
    } else {
      at = end;
    }
  }
}

// What build_config is handed at the file's end ("global_batch_size=GLOBAL_BATCH_SIZE").
std::string Handed(std::string_view text, std::string_view name) {
  const std::size_t main = text.find("__main__");
  if (main == std::string_view::npos) return "";
  const std::string argument = fmt::format("{}=", name);
  const std::size_t at = text.find(argument, main);
  if (at == std::string_view::npos) return "";
  const std::size_t from = at + argument.size();
  return std::string(text.substr(from, text.find_first_of(",\n)", from) - from));
}

// The script as its reader takes it. `gpus`: 0 where nobody says.
std::string Prepared(const std::string& script, std::int64_t gpus) {
  std::string text = script;
  DropParameters(&text);
  DropOptions(&text);
  ReplaceAll(".merge(overrides)", "", &text);
  ReplaceAll(".merge(cli_context.overrides)", "", &text);
  if (gpus > 0) ReplaceAll("get_world_size()", std::to_string(gpus), &text);
  const std::string length = Handed(script, "max_sequence_length");
  const std::string batch = Handed(script, "global_batch_size");
  const std::string nodes = Handed(script, "num_nodes");
  text += fmt::format("\ncommon.max_sequence_length = {}\n", length.empty() ? "4096" : length);
  if (!batch.empty()) text += fmt::format("common.global_batch_size = {}\n", batch);
  if (!batch.empty()) text += fmt::format("data_loader_handed = {}\n", batch);
  if (!nodes.empty()) text += fmt::format("num_nodes_handed = {}\n", nodes);
  return text;
}

// Members of enumerations are their names, calls by position their first field, and a call's class
// or method is its `type`.
void Plain(PythonValue* value, int depth = 0) {
  constexpr int kMostDepth = 12;
  if (depth > kMostDepth) return;
  const std::string_view text = value->text;
  const std::size_t dot = text.rfind('.');
  if (value->kind == Kind::kUnknown && dot != std::string_view::npos && text[0] >= 'A' &&
      text[0] <= 'Z') {
    value->kind = Kind::kText;
    value->text = std::string(text.substr(dot + 1));
  }
  // What a function or a method returns is not known; a class's or a class method's name begins so.
  if (value->kind == Kind::kCall && (text.empty() || text[0] < 'A' || text[0] > 'Z')) {
    *value = {.kind = Kind::kUnknown, .line = value->line};
    return;
  }
  for (PythonValue& item : value->items) Plain(&item, depth + 1);
  for (PythonField& field : value->fields) Plain(&field.value, depth + 1);
  if (value->kind != Kind::kCall) return;
  if (value->text.starts_with("TransformerActivationCheckpointingConfig") &&
      !value->items.empty()) {
    value->fields.push_back({"mode", value->items.front()});
  }
  value->fields.push_back(
      {"type", {.kind = Kind::kText, .text = value->text, .line = value->line}});
}

class OlmoCoreScript {
 public:
  explicit OlmoCoreScript(const File& file) : leaves_(file.path) {}

  // Sections by the class that a function returns, or that it gives to ExperimentConfig.
  void Take(PythonValue value) {
    Plain(&value);
    if (value.kind != Kind::kCall) return;
    if (value.text.starts_with("TransformerConfig.")) {
      Section("model", value);
    } else if (value.text.ends_with("TrainModuleConfig")) {
      Section("train_module", value);
    } else if (value.text == "ExperimentConfig" || value.text == "DataComponents") {
      for (const char* name : {"model", "train_module", "data_loader"}) {
        if (const PythonValue* part = value.Find(name)) Section(name, *part);
      }
    }
  }
  void Set(std::string_view path, const PythonValue& value) { leaves_.Add(path, value); }
  void Set(const Override& set) { leaves_.Add(set.path, set.value, set.line); }
  bool trains() const { return trains_; }
  formats::Document Document() { return leaves_.Take(); }

 private:
  void Section(const std::string& name, const PythonValue& value) {
    trains_ = trains_ || name == "train_module";
    leaves_.AddFields(name, value);
  }

  LeafDocument leaves_;
  bool trains_ = false;
};

constexpr std::string_view kModule = "train_module.";

std::string TextOf(std::string_view name, Reading* r) {
  const std::string argument = fmt::format("{}{}", kModule, name);
  return r->Has(argument) ? r->Text(argument) : std::string();
}

std::optional<std::int64_t> DegreeOf(std::string_view name, Reading* r) {
  return r->Whole(fmt::format("{}{}", kModule, name));
}

// Degrees, copies of shards, and the plan's size.
void ReadOlmoCoreSizes(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t tp = DegreeOf("tp_config.degree", r).value_or(1);
  const std::int64_t cp = DegreeOf("cp_config.degree", r).value_or(1);
  const std::int64_t pp = DegreeOf("pp_config.degree", r).value_or(1);
  const std::int64_t ep = DegreeOf("ep_config.degree", r).value_or(1);
  if (tp > 1) {
    draft.Set("parallel.tp", tp);
    draft.Set("parallel.sequence_parallel", true);
  }
  if (cp > 1) {
    const bool ulysses = Contains(TextOf("cp_config.type", r), "ulysses");
    draft.Set("parallel.cp", cp);
    draft.SetText("framework_options.cp_exchange", ulysses ? "all-to-all" : "all-gather");
  }
  if (pp > 1) draft.Set("parallel.pp", pp);
  const std::string schedule = Lower(TextOf("pp_config.schedule", r));
  if (pp > 1 && Contains(schedule, "interleaved")) {
    draft.SetText("schedule", "1f1b-interleaved");
  } else if (pp > 1 && schedule != "gpipe" && !Contains(schedule, "1f1b")) {
    r->Refuse("train_module.pp_config.schedule",
              fmt::format("'{}' is not modelled; GPipe, 1F1B and Interleaved1F1B are",
                          Printable(schedule, 40)));
  } else if (pp > 1) {
    draft.SetText("schedule", schedule == "gpipe" ? "gpipe" : "1f1b");
  }
  if (ep > 1) draft.Set("parallel.ep", ep);
  Launch launch;
  launch.nodes = r->Whole("num_nodes").value_or(0);
  launch.whole_hosts = true;
  r->SetSize(launch);
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const std::string name = Lower(TextOf("dp_config.name", r));
  const auto copies = DegreeOf("dp_config.num_replicas", r);
  const auto shards = DegreeOf("dp_config.shard_degree", r);
  if (name == "hsdp" && dp > 0) {
    const std::int64_t host = std::max<std::int64_t>(1, r->ClusterGpusPerNode() / tp);
    const std::int64_t group = shards                  ? *shards
                               : copies && *copies > 0 ? dp / *copies
                                                       : std::min(dp, host);
    if (group > 1 && group < dp) draft.Set("parallel.shard_group", Product({group, cp}));
    if (!shards && !copies) {
      draft.Assume(
          fmt::format("shards over the {} data-parallel ranks of a host: hsdp's default", group));
    }
  }
}

void ReadOlmoCoreBatch(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t length = DegreeOf("max_sequence_length", r).value_or(4096);
  const auto micro = DegreeOf("rank_microbatch_size", r);
  const auto all = r->Whole("data_loader.global_batch_size");
  draft.Set("training.seq_len", length);
  if (!micro || length <= 0 || *micro < length) {
    r->Missing("tokens of a rank's micro-batch: give --set training.micro_batch=N (sequences)");
  } else {
    draft.Set("training.micro_batch", *micro / length);
  }
  if (!all || length <= 0) {
    r->Missing("tokens of a step: give --set training.global_batch=N (sequences)");
  } else {
    draft.Set("training.global_batch", *all / length);
  }
}

void ReadOlmoCoreRecompute(Reading* r) {
  Draft& draft = r->draft();
  const std::string mode = Lower(TextOf("ac_config.mode", r));
  const std::vector<std::string> modules = r->Texts("train_module.ac_config.modules");
  const auto interval = DegreeOf("ac_config.block_interval", r);
  if (TextOf("ac_config.type", r).empty()) return draft.SetText("training.recompute", "none");
  if (mode.empty() || mode == "full") {
    draft.SetText("training.recompute", "full");
  } else if (mode == "selected_ops") {
    draft.SetText("training.recompute", "selective");
  } else if (mode == "selected_blocks" && interval) {
    draft.SetText("training.recompute", "full");
    draft.SetText("training.recompute_method", "every");
    draft.Set("training.recompute_layers", *interval);
  } else if (mode == "selected_modules" && modules.size() == 1 &&
             modules.front().ends_with("feed_forward")) {
    draft.SetText("training.recompute", "selective");
    draft.SetText("training.recompute_modules", "mlp");
  } else {
    r->Refuse("train_module.ac_config.mode",
              fmt::format("'{}' is not modelled; full, selected_ops, selected_blocks, and "
                          "selected_modules with blocks.*.feed_forward are",
                          Printable(mode, 40)));
  }
}

void ReadOlmoCoreTraining(Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("framework", "olmo-core");
  const std::string name = Lower(TextOf("dp_config.name", r));
  const std::string type = Lower(TextOf("dp_config.param_dtype", r));
  const std::string reduced = Lower(TextOf("dp_config.reduce_dtype", r));
  const std::string autocast = Lower(TextOf("autocast_precision", r));
  const bool low = type == "bfloat16" || autocast == "bfloat16";
  draft.SetText("training.precision", low ? "bf16" : "fp32");
  if (name == "fsdp" || name == "hsdp") {
    draft.SetText("training.sharding", "zero3");
  } else if (name == "ddp" || name.empty()) {
    draft.SetText("framework", "ddp");
    draft.SetText("training.sharding", "none");
  } else {
    r->Refuse("train_module.dp_config.name",
              fmt::format("'{}' is not modelled; fsdp, hsdp and ddp are", Printable(name, 40)));
  }
  if (!reduced.empty() && reduced != "float32") {
    draft.Set("framework_options.grad_reduce_fp32", false);
  }
  const bool compiled = r->On("train_module.compile_model");
  draft.SetText("framework_options.torch_layers", compiled ? "compiled" : "eager");
  if (r->On("train_module.float8_config.enabled")) {
    draft.SetText("training.precision", "fp8");
    draft.SetText("framework_options.fp8_recipe", "current");
  }
  const std::string optimizer = TextOf("optim.type", r);
  const bool fused = r->On("train_module.optim.fused");
  if (optimizer.ends_with("AdamWConfig") || optimizer == "AdamConfig") {
    draft.SetText("training.optimizer", optimizer == "AdamConfig" ? "adam" : "adamw");
    draft.Set("framework_options.fused_adam", fused);
  } else if (Contains(optimizer, "Muon")) {
    draft.SetText("training.optimizer", "muon");
  } else if (Contains(optimizer, "Lion")) {
    draft.SetText("training.optimizer", "lion");
  } else if (!optimizer.empty()) {
    r->Refuse("train_module.optim.type",
              fmt::format("'{}' is not modelled; AdamW, SkipStepAdamW, Lion and Muon are",
                          Printable(optimizer, 40)));
  }
  if (!r->Has("train_module.max_grad_norm")) {
    draft.Set("framework_options.clip_gradients", false);
  }
  const std::string attention =
      Lower(r->Has("model.attn_backend") ? r->Text("model.attn_backend") : std::string());
  if (attention == "flash_3") {
    draft.SetText("framework_options.attention", "flash3");
  } else if (attention == "torch") {
    draft.SetText("framework_options.attention", "torch");
  } else if (attention == "te") {
    draft.SetText("framework_options.attention", "cudnn");
  }
  ReadOlmoCoreRecompute(r);
}

}  // namespace

const Table& OlmoCoreTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_olmo_core.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsOlmoCore(std::string_view text, const std::string& path) {
  return path.ends_with(".py") && Contains(text, "olmo_core") &&
         Contains(text, "TrainModuleConfig(");
}

Result<Imported> ReadOlmoCore(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken,
                          TakeConfiguration(files, "OLMo-core", "Python"));
  const Tables tables = {&OlmoCoreTable()};
  Reading reading(tables, options, taken.file.path);
  const std::int64_t gpus =
      options.gpus > 0 ? options.gpus : Product({options.nodes, reading.ClusterGpusPerNode()});
  const std::string text = Prepared(taken.file.text, gpus);
  ORRERY_ASSIGN_OR_RETURN(const PythonFile python, ReadPython(text, taken.file.path));
  OlmoCoreScript script(taken.file);
  for (const auto& [name, handed] :
       {std::pair{"data_loader.global_batch_size", "data_loader_handed"},
        std::pair{"num_nodes", "num_nodes_handed"}}) {
    const PythonValue* value = python.values.Find(handed);
    if (value != nullptr && !value->unknown()) script.Set(name, *value);
  }
  for (const std::string& function : python.functions) {
    ORRERY_ASSIGN_OR_RETURN(PythonValue value, CallPython(text, taken.file.path, function));
    script.Take(std::move(value));
  }
  if (!script.trains()) {
    return InvalidInput(
        "'{}': no function of it returns a TransformerTrainModuleConfig or an ExperimentConfig "
        "that can be read without running it; write the job with framework: olmo-core",
        Printable(taken.file.path));
  }
  for (const Override& set : taken.file.overrides) script.Set(set);
  const formats::Document document = script.Document();
  for (const Leaf& leaf : Leaves(document.root)) {
    const Row* row = OlmoCoreTable().Find(leaf.path);
    if (!AddLeaf(document, leaf, row, &reading)) {
      reading.AddUnknown(leaf.path, document.Where(*leaf.node), tables);
    }
  }
  reading.Translate();
  std::string model = reading.TextIfKnown("model.type");
  model = model.substr(model.rfind('.') + 1);
  ReadModel("olmo-core", taken.model, model, "TransformerConfig", &reading);
  if (const auto layers = reading.Whole("model.n_layers")) {
    reading.draft().Set("model.layers", *layers);
  }
  ReadOlmoCoreTraining(&reading);
  ReadOlmoCoreSizes(&reading);
  ReadOlmoCoreBatch(&reading);
  if (Contains(taken.file.text, "get_world_size() >=") || Contains(taken.file.text, "if all(")) {
    reading.draft().Assume("what the script sets for some clusters or sizes alone is not read");
  }
  return reading.Finish("olmo-core");
}

}  // namespace orrery::recipes
